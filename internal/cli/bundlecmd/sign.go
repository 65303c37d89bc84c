package bundlecmd

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/fileowner"
)

// signerFlags holds the flags with the required keys of a bundle's signatures, and their
// required age.
type signerFlags struct {
	keys  []string
	since string
}

// addTo adds the flags to a command.
func (s *signerFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.since, "not-older-than", "",
		"refuse a bundle whose signatures by --key are older than this `time`: 2026-11-26 or 2026-11-26T08:00:00Z")
	cmd.Flags().StringArrayVar(&s.keys, "key", nil,
		"refuse a bundle that is not signed with this public `key`: a file, or ed25519:…; if repeated, one of the keys is enough")
}

// readKeys returns the keys.
func (s *signerFlags) readKeys() ([]bundle.Key, error) {
	since, err := bundle.ParseSince(s.since, len(s.keys) > 0)
	if err != nil {
		return nil, err
	}
	var out []bundle.Key
	for _, arg := range s.keys {
		k, err := bundle.ReadKey(arg)
		if err != nil {
			return nil, err
		}
		out = append(out, k.AcceptedSince(since))
	}
	return out, nil
}

func newKeygenCommand(p program.Program) *cobra.Command {
	return &cobra.Command{
		Use: "keygen NAME", Short: "Create a key pair for signing bundles",
		Long: `Creates a pair of Ed25519 keys. NAME.key is the private key for signing; it is not
encrypted, so keep it where only you can read it. NAME.pub is the public key for
verification; add it to cluster files as spec.bundleKeys. Existing files are not
overwritten.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			dirs, err := p.FindDirectories()
			if err != nil {
				return err
			}
			k, err := bundle.GenerateKey(args[0])
			if err != nil {
				return err
			}
			private, public := args[0]+".key", args[0]+".pub"
			if dirs.Owner != nil {
				if err := dirs.Owner.GiveFiles(private, public); err != nil {
					return err
				}
			}
			value := keygenResult{private, public, k.String(), k.Name()}
			return p.WriteResult(value, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Private: %s (not encrypted; keep it safe)\nPublic: %s\nKey: %s\nNext: slipway bundle sign BUNDLE --key %s\n",
					private, public, value.Key, private)
				return err
			})
		},
	}
}

// keygenResult is the result of keygen as JSON or YAML.
type keygenResult struct {
	Private string `json:"private"`
	Public  string `json:"public"`
	Key     string `json:"key"`
	Name    string `json:"name"`
}

func newSignCommand(p program.Program) *cobra.Command {
	var file string
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "sign BUNDLE --key FILE", Short: "Sign a bundle with a private key",
		Long: `Signs a bundle in place, after verifying its checksums. The signature is part of the
bundle and is transferred with it; the digest does not change.

` + bundleHelp,
		Example: "  slipway bundle sign v1.37.1 --key release.key",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			key, err := bundle.ReadSigningKey(file)
			if err != nil {
				return err
			}
			path, cache, err := findBundle(p, args[0])
			if err != nil {
				return err
			}
			roots := fileowner.BelongsToRoot(path)
			b, err := bundle.Sign(c.Context(), path, cache, key, at, time.Now())
			if err != nil {
				return err
			}
			if err := keepOwner(p, path, roots); err != nil {
				return err
			}
			value := signResult{args[0], b.Digest(), key.Public().Name(), b.SignedBy()}
			return p.WriteResult(value, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s: signed by %s: %s\nNext: slipway bundle verify %s --key %s\n",
					args[0], value.Key, value.Digest, args[0], key.Public())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&file, "key", "", "the `file` with the private key")
	_ = cmd.MarkFlagRequired("key")
	addRegistryFlags(cmd, &at)
	return cmd
}

// keepOwner gives the files that were written at path as root to the caller, unless they
// were root's before.
func keepOwner(p program.Program, path string, roots bool) error {
	dirs, err := p.FindDirectories()
	info, there := os.Stat(path)
	if err != nil || dirs.Owner == nil || roots || there != nil {
		return err // a bundle in a registry has no owner here
	}
	if info.IsDir() {
		path = filepath.Join(path, "index.json")
	}
	return dirs.Owner.GiveFiles(path)
}

// signResult is the result of sign as JSON or YAML.
type signResult struct {
	Bundle   string   `json:"bundle"`
	Digest   string   `json:"digest"`
	Key      string   `json:"key"`
	SignedBy []string `json:"signedBy"`
}
