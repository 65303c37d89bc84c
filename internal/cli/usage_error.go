package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"slipway.dev/slipway/internal/diag"
)

// explainUsageError returns the error for a command line that could not be parsed.
func (a *app) explainUsageError(root *cobra.Command, args []string, err error) error {
	cmd, rest, findErr := root.Find(args)
	if findErr != nil || cmd == nil {
		cmd, rest = root, args
	}
	_ = a.checkOutputFormat(cmd) // the output format may have been parsed already
	if errors.As(err, new(diag.List)) {
		return err // it already has a hint
	}
	return newUsageError(err, cmd, rest)
}

// newUsageError returns cobra's error for a command line, with its suggestions, or with
// the commands that the user probably meant, as a hint.
func newUsageError(err error, see *cobra.Command, args []string) error {
	message, near, _ := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	hint := "see: " + see.CommandPath() + " --help"
	first := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if first >= 0 && strings.HasPrefix(message, "unknown command") {
		if commands := findEquivalentCommands(see, args[first]); len(commands) > 0 {
			return newProblem(idUsage, "did you mean: "+strings.Join(commands, "; ")+"? "+hint, "%s", message)
		}
		if names := findSimilarCommands(see, args[first]); len(names) > 0 {
			return newProblem(idUsage, "did you mean "+strings.Join(names, " or ")+"? "+hint, "%s", message)
		}
	}
	if names := strings.Fields(near); len(names) > 0 {
		hint = "did you mean " + strings.Join(names, " or ") + "? " + hint
	}
	return newProblem(idUsage, hint, "%s", message)
}

// refuseEmptyValues refuses empty values of flags and empty arguments. If a variable of a
// script is not set, the command would otherwise use the default cluster or this
// machine. It does not check arguments after "--", which are for other programs.
func refuseEmptyValues(cmd *cobra.Command, args []string) error {
	const hint = "give it a value or leave it out; check that the variables of your script are set"
	var empty []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 || slices.Contains(values, "") {
			empty = append(empty, "--"+f.Name)
		}
	})
	if len(empty) > 0 {
		return newProblem(idUsage, hint, "empty value for %s", strings.Join(empty, " and "))
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if i := slices.Index(args, ""); i >= 0 {
		return newProblem(idUsage, hint, "argument %d is empty", i+1)
	}
	return nil
}
