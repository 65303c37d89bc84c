package program

import (
	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/release"
)

// CompleteFlag completes the value of a command's flag with fixed values. The flag
// must exist.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteVersion completes the flag --kubernetes of a command.
func CompleteVersion(cmd *cobra.Command, releases func() (*release.Catalogue, error)) {
	_ = cmd.RegisterFlagCompletionFunc("kubernetes", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		known, err := releases()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return known.SupportedVersions(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	})
}
