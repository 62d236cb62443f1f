# doxygen_filter.awk - a header's plain comments as Doxygen's; their text stays text.
#
#     the comment in line 1             documents the file
#     /* ... */ that starts a line      documents what follows
#     /* ... */ behind a member         documents it
#     lines indented by five or more    pictures and programs, kept as they are
#
# A comment's line reads ` * text`; in text nothing is a command, a tag or a link.

function plain(text) {
    gsub(/[\\@#%<>&]/, "\\\\&", text)
    return text
}

function leave_picture() {
    if (picture)
        print " * @endverbatim"
    picture = 0
}

# One line inside a comment.
function inside(line) {
    if (line ~ /^ *\*     +[^ ]/ && !picture) {
        print " * @verbatim"
        picture = 1
    } else if (picture && line !~ /^ *\*     / && line !~ /^ *\* *$/)
        leave_picture()
    if (line ~ /\*\/ *$/)
        leave_picture()
    print picture ? line : plain(line)
    if (line ~ /\*\//)
        comment = 0
}

comment { inside($0); next }

match($0, /\/\*/) {
    before = substr($0, 1, RSTART - 1)
    text = substr($0, RSTART + 2)
    comment = text !~ /\*\//
    if (NR == 1)
        mark = "/** @file\n *"
    else
        mark = before ~ /[^ ]/ ? "/**<" : "/**"
    print before mark plain(text)
    next
}

{ print }
