"""How far long work is: its numbers (`meter`), the words for them (`words`), and where they are
shown (`screen`).
"""
