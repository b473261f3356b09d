# fish completion for optimfs(1)
# SPDX-License-Identifier: Apache-2.0

# Verbs, flags, options and formats come from what the program says of itself,
# names inside a checkpoint from `optimfs ls`.

function __optimfs_verbs
    optimfs --help 2>/dev/null | sed -n 's/^  \([a-z-]*\)  *\(.*\)/\1\t\2/p'
end

function __optimfs_list # VERB LABEL: "Label: a, b or c" of its help
    optimfs help $argv[1] 2>/dev/null |
        sed -n "s/^$argv[2]: //p" | sed 's/ or /, /; s/, /\n/g; s/@N/@/g'
end

function __optimfs_flags
    set -l words (commandline -opc)
    optimfs help $words[2] 2>/dev/null | grep -oE '^ +-.*' | grep -oE -- '--?[a-z]+(-[a-z]+)*'
end

function __optimfs_options
    optimfs help mount 2>/dev/null | sed -n '/^  -o /,$ s/^  \([a-z]\)/\1/p' |
        sed 's/  .*//; s/=[^ ]*/=/g' | tr ' ' '\n'
    for type in (__optimfs_list mount Types)
        echo type=$type
    end
end

# With ",names=" in the word, names of families.
function __optimfs_layouts
    set -l word (commandline -ct)
    if string match -q -- '*,names=*' $word
        set -l begin (string replace -r 'names=.*' 'names=' -- $word)
        for name in (__optimfs_list reshard Names)
            echo $begin$name
        end
    else
        __optimfs_list reshard Formats
    end
end

function __optimfs_mounts
    set -l from /proc/self/mountinfo
    set -q OPTIMFS_MOUNTINFO; and set from $OPTIMFS_MOUNTINFO
    awk '/ - fuse.optimfs /{ print $5 }' $from
end

# Operands before the word being completed, without flags.
function __optimfs_operands
    set -l skip no
    for word in (commandline -opc)[3..]
        if test $skip = yes
            set skip no
        else if contains -- $word -o -j --to --rtol --atol --like --layout --sort --only --by --sweep --output --verify --stat --keep-last --keep-every --drop --from --listen --token-file
            set skip yes
        else if not string match -qr -- '^-.' $word
            echo $word
        end
    end
end

function __optimfs_has_operand
    test (count (__optimfs_operands)) -gt 0
end

function __optimfs_inside # [:latest]
    set -l words (__optimfs_operands)
    set -l dir (string replace -r '[^/]*$' '' -- (commandline -ct))
    set -l at $dir
    test -z "$at"; and set at /
    for name in (optimfs ls "$words[1]$argv[1]" $at 2>/dev/null)
        echo $dir$name
    end
end

set -l inside 'ls cat show cp info sum map tar stat'
complete -c optimfs -n __fish_use_subcommand -f -a '(__optimfs_verbs)'
complete -c optimfs -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__optimfs_flags)'
complete -c optimfs -n '__fish_seen_subcommand_from reshard' -l to -x -a '(__optimfs_layouts)'
complete -c optimfs -n '__fish_seen_subcommand_from reshard' -l verify -r
complete -c optimfs -n '__fish_seen_subcommand_from mkfs' -l layout -x -a '(__optimfs_layouts)'
complete -c optimfs -n '__fish_seen_subcommand_from plan; and __optimfs_has_operand' -f -a '(__optimfs_list reshard Formats)'
complete -c optimfs -n '__fish_seen_subcommand_from stat' -l by -x -a rank
complete -c optimfs -n '__fish_seen_subcommand_from thin' -l drop -x -a optim
complete -c optimfs -n '__fish_seen_subcommand_from report' -s o -r
complete -c optimfs -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from report' -s o -x -a '(__optimfs_options)'
complete -c optimfs -n '__fish_seen_subcommand_from umount commit abort' -f -a '(__optimfs_mounts)'
complete -c optimfs -n '__fish_seen_subcommand_from help' -f -a '(__optimfs_verbs)'
complete -c optimfs -n "__fish_seen_subcommand_from $inside; and __optimfs_has_operand" -f -a '(__optimfs_inside)'
complete -c optimfs -n '__fish_seen_subcommand_from log; and __optimfs_has_operand' -f -a '(__optimfs_inside :latest)'
