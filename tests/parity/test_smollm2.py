"""A model with trained weights and its own vocabulary: SmolLM2-135M-Instruct, as it is fetched."""

import odd_text
import pytest
import tokenizer_driver
import transformers
from tokenizer_driver import added_contents, check_same_ids
from tokenizers import Tokenizer

SEED = 20270
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# Ids of the published tokenizer: digits are words of their own, and the space before them too.
PUBLISHED = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
}


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return Tokenizer.from_file(str(smollm2 / "tokenizer.json"))


def test_transformers_answers_with_the_fetched_weights(smollm2):
    chat = transformers.AutoTokenizer.from_pretrained(smollm2)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2)
    prompt = chat.apply_chat_template(
        QUESTION, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    generated = answer[0, prompt["input_ids"].shape[1] :]
    assert chat.decode(generated) == "The capital of France is Paris.<|im_end|>"


def test_ids_of_a_trained_vocabulary_are_equal(tokenizer, smollm2, tmp_path):
    assert tokenizer_driver.encode(tmp_path, smollm2, list(PUBLISHED)) == [*PUBLISHED.values()]
    texts = ["", " ", *odd_text.PHRASES, *odd_text.planes()]
    check_same_ids(tmp_path, tokenizer, smollm2, texts, add_special_tokens=True)
    special = added_contents(tokenizer)
    assert {"<|endoftext|>", "<|im_start|>", "<|im_end|>"} <= set(special)
    check_same_ids(tmp_path, tokenizer, smollm2, odd_text.random_texts(3000, SEED, special))


@pytest.mark.parametrize("skip_special_tokens", [False, True])
def test_texts_of_a_trained_vocabulary_are_equal(tokenizer, smollm2, tmp_path, skip_special_tokens):
    texts = odd_text.PHRASES + odd_text.random_texts(500, SEED + 1, added_contents(tokenizer))
    sequences = [tokenizer.encode(text).ids for text in texts]
    ours = tokenizer_driver.decode(tmp_path, smollm2, sequences, skip_special_tokens)
    for ids, decoded in zip(sequences, ours, strict=True):
        theirs = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        assert decoded.decode(errors="replace") == theirs, ids
