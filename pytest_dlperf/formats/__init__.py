"""How logs look, as data: records, facts and numbers, and the expressions that find them."""
