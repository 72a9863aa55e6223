-- kind: offline
-- Lists the adapted modules. Before, the families of linear layers determined them.
ALTER TABLE models ADD COLUMN target_modules TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE checkpoints ADD COLUMN target_modules TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE models SET target_modules = rtrim(
  CASE WHEN train_attn <> 0 THEN 'q_proj,k_proj,v_proj,o_proj,' ELSE '' END ||
  CASE WHEN train_mlp <> 0 THEN 'gate_proj,up_proj,down_proj,' ELSE '' END ||
  CASE WHEN train_unembed <> 0 THEN 'lm_head' ELSE '' END, ',');
UPDATE checkpoints SET target_modules = rtrim(
  CASE WHEN train_attn <> 0 THEN 'q_proj,k_proj,v_proj,o_proj,' ELSE '' END ||
  CASE WHEN train_mlp <> 0 THEN 'gate_proj,up_proj,down_proj,' ELSE '' END ||
  CASE WHEN train_unembed <> 0 THEN 'lm_head' ELSE '' END, ',');
