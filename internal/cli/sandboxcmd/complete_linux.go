package sandboxcmd

import (
	"slices"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/sandbox"
)

// completeMachine completes the name of a machine, and then files as arguments of a
// program in the machine.
func completeMachine(p program.Program) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return collectNames(p, listMachineNames), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes any number of names.
func completeNames(p program.Program, of ...func(*sandbox.Sandbox) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, of := range of {
			all = append(all, collectNames(p, of)...)
		}
		named := func(name string) bool { return slices.Contains(args, name) }
		return slices.DeleteFunc(all, named), cobra.ShellCompDirectiveNoFileComp
	}
}

func listMachineNames(sb *sandbox.Sandbox) (out []string) {
	for _, m := range sb.Machines() {
		out = append(out, m.Name())
	}
	return out
}

func listSandboxName(sb *sandbox.Sandbox) []string { return []string{sb.Name()} }

// collectNames calls of for all sandboxes and returns all names. It returns nil if the
// sandboxes cannot be listed.
func collectNames(p program.Program, of func(*sandbox.Sandbox) []string) (out []string) {
	dirs, err := p.FindDirectories()
	if err != nil {
		return nil
	}
	all, _, err := sandbox.List(dirs.Home)
	if err != nil {
		return nil
	}
	for _, sb := range all {
		out = append(out, of(sb)...)
	}
	return out
}
