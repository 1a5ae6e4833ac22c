# Right, with functions of its own in cells of their own.
# %%
def halves(items, position):
    return items[:position], items[position:]


# %% [markdown]
# Links in both directions, always together.

# %%
def hang(child, parent):
    parent.children[child.key[0]] = child
    child.parent = parent


# %%
def split_at(node, position):
    parent = node.parent
    upper = Node([], [])
    upper.key, node.key = halves(node.key, position)
    upper.value, node.value = halves(node.value, position)
    hang(upper, parent)
    hang(node, upper)
    upper.ref_count, upper.timestamp = node.ref_count, node.timestamp
    return upper
