"""PIR, the programs of Paddle 3: JSON files, read into plain data and from there into blocks, and the way back.

`json_reading` turns a file into `data`; `json_writing` turns it back. `to_blocks` makes a `Program` from it, and `from_blocks`
the reverse; both go by `table`, which says how ops of PIR and ops of Paddle 2.x correspond.
"""
