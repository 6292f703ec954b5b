"""Twenty prompt templates for code movement, labelled by hand: five as shots, fifteen as test.

`movable` are beginnings of the constant sentences that may stand before the arguments without a
change of meaning; `bound` of those that may not. What the answer follows stays last and is in
neither. Arguments are written in braces.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Labelled:
    name: str
    text: str
    movable: tuple[str, ...]
    bound: tuple[str, ...] = ()


SHOTS = (
    Labelled(
        "maths",
        "Here is a problem: {problem}\nReason like a patient teacher of mathematics.\n"
        "Show every calculation.\nSolution:",
        ("Reason like", "Show every"),
    ),
    Labelled(
        "translation",
        "Text: {text}\nYou are a translator from English into French.\n"
        "Keep names and numbers unchanged.\nTranslate it faithfully.\nFrench:",
        ("You are a translator", "Keep names"),
        ("Translate it",),
    ),
    Labelled(
        "reply",
        "A customer of {shop} wrote a message. The message was: {message}\n"
        "Reply to this message politely.\nMention no prices.\nReply:",
        ("Mention no prices",),
        ("Reply to this",),
    ),
    Labelled(
        "summary",
        "{article}\n\nThe article above is from a newspaper.\nBe brief and neutral.\n"
        "Avoid quotations.\nSummary:",
        ("Be brief", "Avoid quotations"),
        ("The article above",),
    ),
    Labelled(
        "steps",
        "Topic: {topic}\nFirst list three facts.\nThen explain how they hang together.\n"
        "Use plain English.\nFacts:",
        ("Use plain English",),
        ("First list", "Then explain"),
    ),
)

TESTS = (
    Labelled(
        "sentiment",
        "Review: {review}\nYou classify opinions of buyers as positive, negative or mixed.\n"
        "Reply with a single lower-case word.\nClass:",
        ("You classify", "Reply with"),
    ),
    Labelled(
        "recipe",
        "Ingredients: {ingredients}\nYou are the chef of a small restaurant in Lyon.\n"
        "Measure everything in grams.\nInvent a dish from these ingredients.\nDish:",
        ("You are the chef", "Measure everything"),
        ("Invent a dish",),
    ),
    Labelled(
        "code review",
        "```\n{code}\n```\nAct as a senior engineer who reads Python every day.\n"
        "Point out defects, never style.\nThe code above must stay in one file.\nReview:",
        ("Act as a senior", "Point out defects"),
        ("The code above",),
    ),
    Labelled(
        "question",
        "Question: {question}\nYou know a lot about history and geography.\n"
        "Stay within two sentences.\nAnswer the question without guessing.\nAnswer:",
        ("You know a lot", "Stay within"),
        ("Answer the question",),
    ),
    Labelled(
        "paper's example",
        "Here is a question: {question}. Please act as a math expert and solve it. "
        "Write numbers as digits. Solution:",
        # Reading "it" forward is bearable here, so a person would let the sentence move.
        ("Please act", "Write numbers"),
    ),
    Labelled(
        "letter",
        "Dear {name},\nWrite a letter of thanks for {gift}.\nSound warm but not gushing.\n"
        "Sign as the family Weber.\nLetter:",
        ("Sound warm", "Sign as"),
    ),
    Labelled(
        "contract",
        "<clause>\n{clause}\n</clause>\nYou advise tenants of flats on German law.\n"
        "Cite paragraphs exactly.\nSay whether it is valid.\nAdvice:",
        ("You advise", "Cite paragraphs"),
        ("Say whether it",),
    ),
    Labelled(
        "diagnosis",
        "The machine reports: {report}\nThe following rules apply:\n- Switch off the mains.\n"
        "- Call the service.\nMind the reader's safety at all times.\nAdvice:",
        ("Mind the reader",),
        ("The following rules", "- Switch off", "- Call"),
    ),
    Labelled(
        "poem",
        "Season: {season}\nCompose a poem of four lines in iambic metre.\nRhyme in pairs.\n"
        "Its last word shall be the season.\nPoem:",
        ("Compose a poem", "Rhyme in pairs"),
        ("Its last word",),
    ),
    Labelled(
        "interview",
        "Candidate: {candidate}\nBoth of them applied for the post.\n"
        "You lead interviews in a hospital.\nAsk open questions only.\nFirst question:",
        ("You lead interviews", "Ask open"),
        ("Both of them",),
    ),
    Labelled(
        "tests",
        "def {signature}:\nYou write unit tests with pytest.\nName tests as sentences.\n"
        "Next comes an example: assert add(1, 2) == 3.\nTests:",
        ("You write unit", "Name tests"),
        ("Next comes",),
    ),
    Labelled(
        "headline",
        "Story: {story}\nHeadlines of our paper have at most eight words.\n"
        "No headline ends with a full stop.\nHowever, questions are welcome.\nHeadline:",
        ("Headlines of our", "No headline"),
        ("However, questions",),
    ),
    Labelled(
        "quotation",
        'The speaker said "{sentence}" to the crowd.\nYou judge rhetoric soberly.\n'
        "Name the figure of speech and nothing else.\nThe speaker was a lawyer.\nFigure:",
        ("You judge rhetoric", "Name the figure"),
        ("The speaker was",),
    ),
    Labelled(
        "support",
        "Ticket: {ticket}\nProduct: {product}\nYou work for the help desk of a railway.\n"
        "Never promise refunds.\nClose the ticket politely.\nReply:",
        ("You work for", "Never promise"),
        ("Close the ticket",),
    ),
    Labelled(
        "quiz",
        "Write a quiz on {subject}.\nGive four options, exactly one of which is right.\n"
        "Do not use trick wording.\nThe previous quiz was too hard.\nQuiz:",
        # "one of which" speaks of the options in the same sentence: it could move.
        ("Give four options", "Do not use"),
        ("The previous quiz",),
    ),
)
