"""Liu et al. (2018), *Generating Wikipedia by Summarizing Long Sequences*: what its chapter shows."""
