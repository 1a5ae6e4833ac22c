# Right, with what people leave in notebooks: magics, prints, pictures, checks, an import too many.
# %%
%matplotlib inline
!pip install radixlab
import math, random
from radixlab.classroom import check, show

# %%
%%time
def split_at(node, position):
    print("cutting", node.key, "at", position)
    upper = Node(node.key[:position], node.value[:position], node.parent)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    node.key, node.value = node.key[position:], node.value[position:]
    node.parent = upper
    upper.children[node.key[0]] = node
    show(upper)
    return upper

# %%
split_at?
check("split_at")

# %%
root = Node([], [])
leaf = Node([1, 2, 3], [7, 8, 9], root)
assert split_at(leaf, 2).key == [1, 2]
show(root)
