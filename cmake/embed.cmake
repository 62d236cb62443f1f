# A file as an array of C: cmake -DIN=<file> -DOUT=<file.c> -DNAME=<array> -P embed.cmake
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
string(REGEX REPLACE "(('[^']*',){14})" "\\1\n    " bytes "${bytes}")
get_filename_component(from ${IN} NAME)
file(WRITE ${OUT} "/* Made from ${from}. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {\n    ${bytes}0};\n")
