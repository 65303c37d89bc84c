package sandboxcmd

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/sandbox"
)

func completeMachines(p program.Program) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return names(p, func(sb *sandbox.Sandbox) (out []string) {
			for _, m := range sb.Machines() {
				out = append(out, m.Name())
			}
			return out
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

func completeSandboxes(p program.Program) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return names(p, func(sb *sandbox.Sandbox) []string { return []string{sb.Name()} }), cobra.ShellCompDirectiveNoFileComp
	}
}

// names completes; where that fails there is nothing to offer.
func names(p program.Program, of func(*sandbox.Sandbox) []string) (out []string) {
	dirs, err := p.Directories()
	if err != nil {
		return nil
	}
	all, err := sandbox.List(dirs.Home)
	if err != nil {
		return nil
	}
	for _, sb := range all {
		out = append(out, of(sb)...)
	}
	return out
}
