"""Word problems in GSM8K's form, for workloads that think about them. Imports the lab's texts."""

import random

from sgjax.lab.workloads.base import DataSource
from sgjax.lab.workloads.text import choose, prose, read_rows, too_few

TEST, TRAIN = "gsm8k_test.jsonl", "gsm8k_train_first1000.jsonl"
KEYS = ("question", "answer")


def load_problems(data: DataSource, seed: int, count: int) -> list[str]:
    """Return questions in an order fixed by the seed; made up where there are no data."""
    paths = data.find((TEST,))
    if paths:
        questions = [row["question"] for row in read_rows(paths[0], KEYS)]
    else:
        rng = random.Random(0)
        questions = [prose(rng, rng.randint(25, 75)) for _ in range(count)]
    return choose(random.Random(seed), questions, count, "num_questions")


def load_solved(data: DataSource, count: int) -> str:
    """Return so many solved problems as one text.

    Raises:
        ConfigError: there are fewer.
    """
    paths = data.find((TRAIN,))
    if paths:
        rows = read_rows(paths[0], KEYS)
        if count > len(rows):
            raise too_few("shots", count, len(rows))
        solved = [(row["question"], row["answer"]) for row in rows[:count]]
    else:
        rng = random.Random(1)
        solved = [(prose(rng, 50), prose(rng, 65)) for _ in range(count)]
    return "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in solved)
