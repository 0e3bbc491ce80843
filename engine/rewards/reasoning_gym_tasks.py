"""Which tasks of reasoning-gym 0.1.25 are scored here.

The scorer of each was read: what it does with a completion, and with a row, which may be a
tenant's own and only look like a generated one. A new release's tasks are looked at before they
are added; a test fails while one is missing here.
"""

_EVAL = "its scorer runs the completion as Python (eval)"
_SYMPY = "its scorer parses the completion with sympy, which runs it as Python (eval)"
_ROW = "its scorer runs a text of the row as Python (eval)"

REFUSED = {
    "binary_matrix": _EVAL,
    "bitwise_arithmetic": _ROW,
    "composite": "its rows are of other tasks; name those instead",
    "countdown": _SYMPY,
    "game_of_life_halting": "its scorer gives every answer the full score, whatever it says",
    "intermediate_integration": _SYMPY,
    "n_queens": _EVAL,
    "number_sorting": _ROW,
    "polynomial_multiplication": _SYMPY,
    "puzzle24": _SYMPY,
    "simple_integration": _SYMPY,
    "spiral_matrix": _EVAL,
    "string_insertion": _EVAL,
}
_NAMES = """
ab acre advanced_geometry aiw arc_1d arc_agi base_conversion basic_arithmetic bf
binary_alternation boxnet caesar_cipher calendar_arithmetic chain_sum circuit_logic codeio
coin_flip color_cube_rotation complex_arithmetic count_bits count_primes course_schedule
cryptarithm decimal_arithmetic decimal_chain_sum dice emoji_mystery family_relationships
figlet_font fraction_simplification futoshiki game_of_life gcd graph_color group_anagrams
gsm_symbolic isomorphic_strings jugs kakurasu knight_swap knights_knaves largest_island lcm
leg_counting letter_counting letter_jumble list_functions mahjong_puzzle manipulate_matrix maze
mini_sudoku modulo_grid needle_haystack number_filtering number_format number_sequence
palindrome_generation palindrome_partitioning path_star polynomial_equations pool_matrix
power_function prime_factorization products propositional_logic quantum_lock ransom_note rearc
rectangle_count rotate_matrix rotten_oranges rubiks_cube rush_hour self_reference
sentence_reordering shortest_path simple_equations simple_geometry sokoban spell_backward
string_manipulation string_splitting string_synthesis sudoku survo syllogism time_intervals
tower_of_hanoi tsumego word_ladder word_sequence_reversal word_sorting zebra_puzzles
"""
TASKS = frozenset(_NAMES.split())
