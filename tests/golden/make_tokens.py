"""Train a small SentencePiece model and write what the SentencePiece library encodes with it.

Run by `make goldens`; needs the `sentencepiece` package.
"""

import io
import json
from pathlib import Path

import sentencepiece

HERE = Path(__file__).parent
TEXTS = [
    "",
    " ",
    "Hello world",
    " Hello  world ",
    "the License",
    "  two   three    spaces",
    "line\none\n\n\ttab\r\n",
    "1234567890 12 3",
    "naïve café, 漢字 and 🙂🙂!",
    "You may obtain a copy of the License at http://www.apache.org/licenses/",
    "unUSUAL cApItAlS",
    "s> is no token",
    "a" * 40,
]


def main() -> None:
    """Write tokens/sentencepiece.model and tokens/sentencepiece.json."""
    corpus = (HERE.parents[1] / "LICENSE").read_text().splitlines()
    model = io.BytesIO()
    # Llama's settings: BPE, bytes for what is unknown, spaces kept, no normalisation.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        minloglevel=2,
    )
    folder = HERE / "tokens"
    folder.mkdir(exist_ok=True)
    (folder / "sentencepiece.model").write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    golden = {text: processor.encode(text) for text in TEXTS}
    (folder / "sentencepiece.json").write_text(
        json.dumps(golden, ensure_ascii=False, indent=0, sort_keys=True) + "\n"
    )


if __name__ == "__main__":
    main()
