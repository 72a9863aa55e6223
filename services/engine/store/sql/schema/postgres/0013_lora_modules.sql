-- kind: offline
-- Lists the modules that LoRA may adapt, with the numbers of their families. All base models before
-- are dense decoders, which have these eight. The next worker of a base model replaces the list.
ALTER TABLE base_models ADD COLUMN lora_modules TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE base_models SET lora_modules =
  'q_proj:0,k_proj:0,v_proj:0,o_proj:0,gate_proj:1,up_proj:1,down_proj:1,lm_head:2';
