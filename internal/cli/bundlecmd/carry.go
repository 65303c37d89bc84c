package bundlecmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/iec"
	"slipway.dev/slipway/internal/owner"
)

// registryFlags are those of a command that may speak to a registry. No
// password is ever one of them: others can read a command line.
func registryFlags(cmd *cobra.Command, at *bundle.Registry) {
	f := cmd.Flags()
	f.StringVar(&at.Credentials, "credentials", "", "a `file` with credentials for registries, of the form that docker login writes (default: those that it keeps)")
	f.StringVar(&at.CA, "ca", "", "a `file` with certificates of authorities, trusted for registries beside the system's")
	f.BoolVar(&at.Insecure, "insecure", false, "speak to a registry with any certificate, or without TLS")
}

func newExport(p program.Program) *cobra.Command {
	var out string
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "export BUNDLE --out FILE", Short: "Write a bundle to one file, to be carried elsewhere",
		Long:    "Write a bundle to one file, to be carried elsewhere, with its signatures.\nEvery byte is compared with its checksum; the file is there whole, or not at all.\n\n" + whatIsABundle,
		Example: "  slipway bundle export v1.37.1 --out /media/stick/k8s.tar.zst",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.Directories()
			if err != nil {
				return err
			}
			if err := bundle.CheckOut(out); err != nil {
				return err
			}
			b, err := open(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			missing := owner.Missing(out)
			if err := bundle.Export(c.Context(), b, out); err != nil {
				return err
			}
			if err := give(dirs.Owner, out, missing); err != nil {
				return err
			}
			return answerCarried(p, b, out, "slipway bundle import "+out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the `file`, a .tar.zst, or a directory, if it ends in /")
	_ = cmd.MarkFlagRequired("out")
	registryFlags(cmd, &at)
	return cmd
}

// carried is a bundle that was brought from one place to another.
type carried struct {
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	Digest     string   `json:"digest"`
	SizeBytes  int64    `json:"sizeBytes"`
	SignedBy   []string `json:"signedBy,omitempty"`
	To         string   `json:"to"`
}

func answerCarried(p program.Program, b *bundle.Bundle, to, next string) error {
	m := b.Manifest()
	value := carried{m.Kubernetes, m.Arches, b.Digest(), b.Size(), b.SignedBy(), to}
	return p.Data(value, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "Kubernetes %s for %s, %s, verified: %s\nDigest: %s\nNext: %s\n",
			m.Kubernetes, strings.Join(m.Arches, ", "), iec.Bytes(value.SizeBytes), to, value.Digest, next)
		return err
	})
}

func newImport(p program.Program) *cobra.Command {
	return newArrival(p, arrival{
		use: "import FILE", short: "Bring a bundle into the cache, where clusters find it by its version",
		long: `Bring a bundle into the cache, where clusters find it by its version: from a
.tar.zst file or a directory. Every byte is compared with its checksum first;
what is not whole, or not signed by the key that --key names, leaves nothing
behind. A file that "slipway bundle delta" made takes what it lacks from the
cache.`,
		get: func(ctx context.Context, from, cache string, _ bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error) {
			return bundle.Import(ctx, from, cache, keys...)
		},
	})
}

func newPull(p program.Program) *cobra.Command {
	cmd := newArrival(p, arrival{
		use: "pull REFERENCE", short: "Bring a bundle from a registry into the cache", registry: true,
		long: `Bring a bundle from an OCI registry into the cache, where clusters find it by
its version. What the cache has already is not fetched again, and every byte is
compared with its checksum. Credentials are those that docker login keeps, or of
a file; never on the command line.`,
		get: func(ctx context.Context, from, cache string, at bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error) {
			return bundle.Pull(ctx, from, cache, at, keys...)
		},
	})
	cmd.Example = "  slipway bundle pull registry.example.com/slipway/bundle:v1.37.1 --ca ca.crt"
	return cmd
}

// An arrival is a command that brings a bundle into the cache.
type arrival struct {
	use, short, long string
	registry         bool
	get              func(ctx context.Context, from, cache string, at bundle.Registry, keys []bundle.Key) (*bundle.Bundle, error)
}

func newArrival(p program.Program, a arrival) *cobra.Command {
	var at bundle.Registry
	var by signers
	cmd := &cobra.Command{
		Use: a.use, Short: a.short, Long: a.long, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.Directories()
			if err != nil {
				return err
			}
			keys, err := by.read()
			if err != nil {
				return err
			}
			b, err := a.get(c.Context(), args[0], dirs.Cache, at, keys)
			if err != nil {
				return err
			}
			return answerCarried(p, b, b.Path(), "slipway create cluster --kubernetes "+b.Manifest().Kubernetes+" -f FILE")
		},
	}
	if a.registry {
		registryFlags(cmd, &at)
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	by.flags(cmd)
	return cmd
}

func newPush(p program.Program) *cobra.Command {
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "push BUNDLE REFERENCE", Short: "Put a bundle into a registry",
		Long: `Put a bundle into an OCI registry, with its signatures. Every byte is compared
with its checksum before, and the registry is asked for every part after. What it
has already is not sent again. Credentials are those that docker login keeps, or
of a file; never on the command line.

` + whatIsABundle,
		Example: "  slipway bundle push v1.37.1 registry.example.com/slipway/bundle:v1.37.1",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: completeBundle(p),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := open(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			to, err := bundle.Push(c.Context(), b, args[1], at)
			if err != nil {
				return err
			}
			return answerCarried(p, b, to, "slipway bundle pull "+args[1])
		},
	}
	registryFlags(cmd, &at)
	return cmd
}

func newMerge(p program.Program) *cobra.Command {
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "merge BUNDLE BUNDLE...", Short: "Make one bundle of several for different architectures",
		Long: `Make one bundle, in the cache, of several of the same version and source for
different architectures: the same as if they had been built together. It carries
none of their signatures.

` + whatIsABundle,
		Example: "  slipway bundle merge amd64.tar.zst arm64.tar.zst",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.Directories()
			if err != nil {
				return err
			}
			var parts []*bundle.Bundle
			for _, arg := range args {
				part, err := open(c.Context(), p, arg, at)
				if err != nil {
					return err
				}
				parts = append(parts, part)
			}
			b, err := bundle.Merge(c.Context(), dirs.Cache, parts...)
			if err != nil {
				return err
			}
			return answerCarried(p, b, b.Path(), "slipway bundle export "+b.Path()+" --out FILE")
		},
	}
	registryFlags(cmd, &at)
	return cmd
}

func newDelta(p program.Program) *cobra.Command {
	var out string
	var at bundle.Registry
	cmd := &cobra.Command{
		Use: "delta OLD NEW --out FILE", Short: "Write what one bundle has and another lacks",
		Long: `Write to one file what the bundle NEW has and OLD lacks, with NEW's signatures.
Where the cache has OLD, "slipway bundle import" makes NEW of it, every byte
verified.

OLD and NEW are directories, .tar.zst files, registry references or versions in
the cache.`,
		Example: "  slipway bundle delta v1.36.4 v1.37.1 --out update.tar.zst",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			dirs, err := p.Directories()
			if err != nil {
				return err
			}
			old, err := open(c.Context(), p, args[0], at)
			if err != nil {
				return err
			}
			next, err := open(c.Context(), p, args[1], at)
			if err != nil {
				return err
			}
			missing := owner.Missing(out)
			d, err := bundle.Delta(c.Context(), old, next, out)
			if err != nil {
				return err
			}
			if err := give(dirs.Owner, out, missing); err != nil {
				return err
			}
			return answerDelta(p, old, next, d, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the `file`, a .tar.zst")
	_ = cmd.MarkFlagRequired("out")
	registryFlags(cmd, &at)
	return cmd
}

// differs is what a delta answers with.
type differs struct {
	Base      string `json:"base"`
	Digest    string `json:"digest"`
	Blobs     int    `json:"blobs"`
	SizeBytes int64  `json:"sizeBytes"`
	Out       string `json:"out"`
}

func answerDelta(p program.Program, old, next *bundle.Bundle, d bundle.Difference, out string) error {
	value := differs{old.Digest(), next.Digest(), d.Blobs, d.SizeBytes, out}
	return p.Data(value, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "Kubernetes %s from %s: %s of %s in %s\nNext, where that bundle is: slipway bundle import %s\n",
			next.Manifest().Kubernetes, old.Manifest().Kubernetes, iec.Bytes(d.SizeBytes), iec.Bytes(next.Size()), out, out)
		return err
	})
}
