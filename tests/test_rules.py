"""Architecture section 7: every rule has named tests, and this is where they stand."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

RULES = {
    4: [
        "engine/test_sampling.py::test_a_mask_belongs_to_its_row",
        "engine/test_same_text.py::test_text_is_the_same_under_every_cache_policy_and_siblings",
    ],
    5: [
        "cache/test_radix_tree.py::test_a_split_node_is_as_recently_used_as_the_match_that_split_it",
        "schedule/test_scheduler.py::test_a_prompt_that_is_cached_whole_still_computes_a_token",
        "cache/test_page_pool.py::test_freeing_twice_is_an_internal_error",
    ],
    6: [
        "cache/test_radix_tree.py::test_equal_prompts_end_on_the_same_pages_and_duplicates_are_freed",
        "schedule/test_scheduler.py::test_equal_prompts_run_at_once_and_free_their_duplicates",
    ],
    7: [
        "schedule/test_scheduler.py::test_requests_that_want_no_token_hold_no_slot_afterwards",
        "schedule/test_hints.py::test_hint_pins_fall_when_nothing_else_can_run",
    ],
    8: [
        "engine/test_same_text.py::test_text_is_the_same_under_every_cache_policy_and_siblings",
        "engine/test_same_text.py::test_text_is_the_same_through_retractions",
        "engine/test_same_text.py::test_text_is_the_same_through_evictions",
        "engine/test_same_text.py::test_text_is_the_same_with_every_attention_backend",
        "engine/test_same_text_smollm2.py::test_text_is_the_same_under_every_switch",
        "engine/test_sampling.py::test_a_seed_gives_the_same_draw_in_any_batch",
        "engine/test_guess.py::test_outputs_and_their_log_probabilities_are_those_without_guesses",
    ],
    9: [
        "lang/test_errors.py::test_every_read_raises_the_failure_with_its_cause",
        "engine/test_engine.py::test_a_broken_device_fails_requests_instead_of_hanging",
        "engine/test_engine.py::test_shutdown_fails_what_is_alive_and_what_comes_later",
    ],
    10: [
        "test_types.py::test_a_value_that_is_not_allowed_is_refused",
        "engine/test_bad_input.py::test_a_request_that_cannot_be_honoured_is_refused",
        "engine/test_engine.py::test_min_new_tokens_bias_and_penalties_are_honoured",
    ],
    11: [
        "tokens/test_vocabularies.py::test_folder_end_ids_are_the_union_of_all_sources",
        "engine/test_sampling.py::test_padded_ids_are_never_sampled",
        "engine/test_step.py::test_padded_ids_have_no_probability",
    ],
    12: [
        "tokens/test_detokenize.py::"
        "test_a_possible_beginning_of_a_stop_string_is_held_back_until_it_is_refuted",
        "tokens/test_detokenize.py::test_pieces_add_up_to_the_text_that_the_naive_rule_gives",
        "engine/test_engine.py::test_a_stream_never_shows_what_a_stop_string_cuts_off",
    ],
}
"""Rule number -> its tests. Rules 1 to 3 are about grammars."""


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_its_tests(rule: int) -> None:
    for place in RULES[rule]:
        file, name = place.split("::")
        tree = ast.parse((TESTS / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, f"rule {rule}: {file} has no {name}; name the test that replaced it"
