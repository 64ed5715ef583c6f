"""Each zero-shot task as a text to continue, in a short example: the input that `repro.papers.gpt2_2019.sets` builds.

For `repro.plotting.draw_prompts`. A test compares the text with the actual output of the functions in `sets`.
"""

GIVEN, CUE, SCORED, LEFT_OUT = "given", "cue", "scored", "left out"
Lines = list[list[tuple[str, str]]]

PROMPTS: dict[str, Lines] = {
    "LAMBADA: name the last word": [
        [("She opened the door and greeted her", GIVEN), ("brother", SCORED)]],
    "CBT: fill in the blank (score every candidate)": [
        [("The fox met a bear. Then the", GIVEN), ("fox ran home.", SCORED)],
        [("The fox met a bear. Then the", GIVEN), ("bear ran home.", SCORED)]],
    "Reading comprehension": [
        [("Ann came first. Then Bob came.", GIVEN)],
        [("Q:", CUE), ("Who came first?", GIVEN)],
        [("A:", CUE), ("Ann", SCORED)]],
    "Questions without a text": [
        [("Q:", CUE), ("Who wrote Hamlet?", GIVEN)],
        [("A:", CUE), ("Shakespeare", GIVEN), ("and four more pairs", LEFT_OUT)],
        [("Q:", CUE), ("Who painted Guernica?", GIVEN)],
        [("A:", CUE), ("Picasso", SCORED)]],
    "Summary": [
        [("The whole article.", GIVEN)],
        [("TL;DR:", CUE), ("A short version.", SCORED)]],
    "Translation": [
        [("the house", GIVEN), ("=", CUE), ("la maison", GIVEN), ("and four more pairs", LEFT_OUT)],
        [("the garden", GIVEN), ("=", CUE), ("le jardin", SCORED)]]}
