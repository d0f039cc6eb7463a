/* cli/completion.c: berth completion bash|zsh|fish. The scripts are small: all knowledge is in
 * `berth __complete` (complete.c). */
#include "cli/verbs.h"

static const char bash[] = "# berth completion for bash: source <(berth completion bash)\n"
                           "_berth() {\n"
                           "    local IFS=$'\\n' line out\n"
                           "    COMPREPLY=()\n"
                           "    out=$(\"${COMP_WORDS[0]}\" __complete "
                           "\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null) || return 0\n"
                           "    if [[ $out == :files ]]; then\n"
                           "        compopt -o default 2>/dev/null\n"
                           "        return 0\n"
                           "    fi\n"
                           "    for line in $out; do\n"
                           "        COMPREPLY+=(\"${line%%$'\\t'*}\")\n"
                           "    done\n"
                           "}\n"
                           "complete -F _berth berth\n";

static const char zsh[] =
    "#compdef berth\n"
    "# berth completion for zsh: source <(berth completion zsh)\n"
    "_berth() {\n"
    "    local out line\n"
    "    local -a items\n"
    "    out=$(\"${words[1]}\" __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null) || return 1\n"
    "    if [[ $out == :files ]]; then\n"
    "        _files\n"
    "        return\n"
    "    fi\n"
    "    for line in ${(f)out}; do\n"
    "        items+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
    "    done\n"
    "    _describe 'berth' items\n"
    "}\n"
    "if [ \"$funcstack[1]\" = \"_berth\" ]; then _berth \"$@\"; else compdef _berth berth; fi\n";

static const char fish[] =
    "# berth completion for fish: berth completion fish | source\n"
    "function __berth_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l current (commandline -ct)\n"
    "    set -l out ($words[1] __complete $words[2..-1] \"$current\" 2>/dev/null)\n"
    "    if test \"$out\" = ':files'\n"
    "        __fish_complete_path $current\n"
    "    else\n"
    "        printf '%s\\n' $out\n"
    "    end\n"
    "end\n"
    "complete -c berth -f -a '(__berth_complete)'\n";

static int completion_run(struct cli *cli, const void *values _unused_, const struct args *args,
                          struct err *err)
{
        const char *shell = args->n == 1 ? args->at[0] : "";
        const char *script = str_eq(shell, "bash")   ? bash
                             : str_eq(shell, "zsh")  ? zsh
                             : str_eq(shell, "fish") ? fish
                                                     : NULL;
        if (!script)
                return usage_error(cli, err,
                                   args->n == 1 ? "no completion for '%s': bash, zsh or fish"
                                                : "for which shell: bash, zsh or fish?%s",
                                   shell);
        cli_out(cli, "%s", script);
        return 0;
}

const struct verb verb_completion = {
        .name = "completion",
        .args = "bash|zsh|fish",
        .summary = "a script that completes commands, options and names",
        .examples = "  source <(berth completion bash)\n"
                    "  berth completion fish | source",
        .run = completion_run,
        .group = VERBS_OTHER,
        .offline = true,
        .words = "bash|zsh|fish",
};
