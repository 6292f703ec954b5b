"""Tools: the model picks one and writes its input, Python runs it, the model answers."""

import ast
import operator

import sgjax as sgl

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

POPULATION = {"Norway": 5_500_000, "Iceland": 390_000, "Malta": 540_000}


def calculate(text):
    """Evaluate +, -, *, / and brackets; say so where that is not what the text holds."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"cannot calculate {text!r}")

    try:
        return str(value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        return f"error: {error}"


def population(text):
    """Return a country's population."""
    return str(POPULATION.get(text.strip(), "unknown country"))


TOOLS = {"calculate": calculate, "population": population}


@sgl.function
def assist(s, request):
    s += sgl.system(
        "You have two tools: calculate(expression) and population(country). Use the one that helps."
    )
    s += sgl.user(request)
    with s.assistant():
        s += "I use " + sgl.select("tool", list(TOOLS)) + "("
        s += sgl.gen("input", max_tokens=24, stop=")") + ")."
    s += sgl.user(f"The result is {TOOLS[s['tool']](s['input'])}. Now answer in one sentence.")
    s += sgl.assistant(sgl.gen("answer", max_tokens=48, stop="\n"))


if __name__ == "__main__":
    with sgl.Engine() as engine:
        for request in ("What is 17 * 23?", "How many people live in Iceland?"):
            state = assist.run(request=request, backend=engine, temperature=0)
            print(f"{state['tool']}({state['input']}) -> {state['answer']}")
