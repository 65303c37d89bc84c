// Package program is what a command has of the program that it is a part of:
// its streams, its global flags, and the caller's directories.
package program

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/owner"
	"slipway.dev/slipway/internal/release"
)

// A Program is the part of the program that a command needs.
type Program struct {
	In       io.Reader
	Out, Err io.Writer // Out is data, Err is talk
	// Size is that of the terminal at Err; nil if there is none.
	Size func() (columns, rows int)
	// Data answers: as text by its own function, else value in the format
	// that -o asks for.
	Data func(value any, text func(io.Writer) error) error
	// Agree gets leave for what the question says: by --yes, or from the
	// person at the terminal.
	Agree func(ctx context.Context, question string) error
	// Directories are the caller's.
	Directories func() (Directories, error)
	// Releases are those that can be installed, with the user's own.
	Releases func() (*release.Catalogue, error)
}

// Directories are where things are kept, and whose they are.
type Directories struct {
	Home  string // records
	Cache string // downloads, builds and bundles
	User  string // the caller's home
	Owner *owner.Owner
}

// Parent is a command that only has others below it.
func Parent(use, short string, aliases ...string) *cobra.Command {
	return WordsOnly(&cobra.Command{
		Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs,
		// A misspelt command is the mistake to name, not the flags after it.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	})
}

// wordsOnly marks commands in cobra's notes.
const wordsOnly = "slipway.dev/words-only"

// WordsOnly marks a command that has no answer of its own to give in another
// format: it refuses -o.
func WordsOnly(cmd *cobra.Command) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[wordsOnly] = "true"
	return cmd
}

// IsWordsOnly says whether a command is marked.
func IsWordsOnly(cmd *cobra.Command) bool { return cmd.Annotations[wordsOnly] != "" }
