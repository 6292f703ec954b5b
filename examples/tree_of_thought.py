"""Search over thoughts: propose several next steps, rate each, keep the best, go on."""

import sgjax as sgl

RATINGS = ["1", "2", "3", "4", "5"]


def best(states, count):
    """Return the states with the highest rating; earlier ones win ties."""
    return sorted(states, key=lambda state: -int(state["rating"]))[:count]


@sgl.function
def solve(s, problem, depth=2, breadth=3, keep=2):
    s += f"Problem: {problem}\nLet us solve it step by step.\n"
    frontier = [s]
    for step in range(1, depth + 1):
        proposed = []
        for state in frontier:
            for branch in state.fork(breadth):
                branch += f"Step {step}:" + sgl.gen("step", max_tokens=48, stop="\n") + "\n"
                branch += "How promising is this, from 1 to 5? "
                branch += sgl.select("rating", RATINGS) + "\n"
                proposed.append(branch)
        frontier = best(proposed, keep)
    winner = frontier[0]
    winner += "Answer:" + sgl.gen("answer", max_tokens=32, stop="\n")
    s.set_var("answer", winner["answer"])
    s.set_var("path", winner.text())


if __name__ == "__main__":
    with sgl.Engine() as engine:
        problem = "A farmer has 15 sheep, and all but 8 run away. How many are left?"
        state = solve.run(problem=problem, backend=engine, temperature=0.7, seed=1)
        print(state["path"])
