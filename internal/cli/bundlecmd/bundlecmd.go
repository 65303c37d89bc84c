// Package bundlecmd is the command `slipway bundle`: build, inspect, verify.
package bundlecmd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/bundle"
	"slipway.dev/slipway/internal/bundle/source/upstream"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/release"
)

// Streams are where a command reads and writes: Out is data, Err is talk.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// New makes the command.
func New(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		Aliases: []string{"artifact"},
		Short:   "Build, inspect and verify bundles: everything a cluster needs, in one file",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.SetIn(s.In)
	cmd.SetOut(s.Out)
	cmd.SetErr(s.Err)
	cmd.AddCommand(newBuild(s), newInspect(s), newVerify(s))
	return cmd
}

// catalogue loads the release catalogue with the user's own over it.
func catalogue() (*release.Catalogue, error) {
	home := os.Getenv("SLIPWAY_HOME")
	if home == "" {
		data := os.Getenv("XDG_DATA_HOME")
		if data == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("finding the data directory (SLIPWAY_HOME names another): %w", err)
			}
			data = filepath.Join(user, ".local", "share")
		}
		home = filepath.Join(data, "slipway")
	}
	return release.Load(filepath.Join(home, "releases.yaml"))
}

func newBuild(s Streams) *cobra.Command {
	var o bundle.BuildOptions
	var format string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build a bundle and keep it in the cache",
		Long: `Build a bundle and keep it in the cache, where "slipway create cluster" finds it.

Sources: "upstream" downloads official releases and images; "modules" compiles
everything from Go modules; "auto" takes upstream where it answers, else
modules. What the cache holds already is neither fetched nor compiled again.`,
		Example: `  slipway bundle build
  slipway bundle build --kubernetes v1.36.4 --arch amd64,arm64 --out k8s.tar.zst`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := checkFormat(format); err != nil {
				return err
			}
			if o.Cache, err = bundle.CacheDir(os.Getenv); err != nil {
				return err
			}
			if o.Releases, err = catalogue(); err != nil {
				return err
			}
			display := NewDisplay(s.Err)
			o.Progress = display.Show
			b, err := bundle.Build(c.Context(), o)
			display.Close()
			if err != nil {
				return err
			}
			return printBuilt(s.Out, b, o, format)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubernetes, "kubernetes", "", "Kubernetes version (default: the newest supported)")
	f.StringSliceVar(&o.Arches, "arch", nil, "architectures: amd64, arm64 (default: this machine's)")
	f.StringVar(&o.Source, "source", bundle.Auto, "auto, upstream or modules")
	f.StringVar(&o.Upstream.Mirror, "mirror", "", "where upstream is: "+strings.Join(upstream.Mirrors(), ", ")+" (default: the official sites)")
	f.StringToStringVar(&o.Upstream.Sites, "site", nil, "replace an upstream site: NAME=URL (see docs/guide/bundle.md)")
	f.StringVar(&o.Out, "out", "", "also write it here: a .tar.zst file, or a directory if it ends in /")
	f.StringVarP(&format, "output", "o", "text", "output format: text, json or yaml")
	return cmd
}

// built is what a build answers with.
type built struct {
	Kubernetes string   `json:"kubernetes"`
	Arches     []string `json:"arches"`
	Source     string   `json:"source"`
	Digest     string   `json:"digest"`
	SizeBytes  int64    `json:"sizeBytes"`
	Path       string   `json:"path"`
	Out        string   `json:"out,omitempty"`
}

func printBuilt(w io.Writer, b *bundle.Bundle, o bundle.BuildOptions, format string) error {
	m := b.Manifest()
	out := built{m.Kubernetes, m.Arches, m.Source, b.Digest(), b.Size(), b.Path(), o.Out}
	if format != "text" {
		return printObject(w, out, format)
	}
	where := out.Path
	if o.Out != "" {
		where = o.Out
	}
	_, err := fmt.Fprintf(w, "Kubernetes %s for %s: %s in %s\nNext: slipway bundle inspect %s\n",
		out.Kubernetes, strings.Join(out.Arches, ", "), size(out.SizeBytes), where, where)
	return err
}

// open opens the bundle that an argument names: a path, a reference, or a
// version that the cache has.
func open(c *cobra.Command, arg string) (*bundle.Bundle, error) {
	cache, err := bundle.CacheDir(os.Getenv)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(arg); err != nil {
		if releases, err := catalogue(); err == nil {
			if r, err := releases.Resolve(arg); err == nil {
				if path, ok := bundle.Cached(cache, r.Kubernetes, nil); ok {
					arg = path
				}
			}
		}
	}
	return bundle.Open(c.Context(), arg, cache)
}

func newVerify(s Streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "verify BUNDLE",
		Short: "Compare every byte of a bundle with its checksums",
		Long:  "Compare every byte of a bundle with its checksums.\n\nBUNDLE is a directory, a .tar.zst file, a registry reference or a version in the cache.",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			b, err := open(c, args[0])
			if err != nil {
				return err
			}
			if err := b.Verify(c.Context()); err != nil {
				return err
			}
			m := b.Manifest()
			if format != "text" {
				return printObject(s.Out, verified{args[0], m.Kubernetes, len(m.Components), len(m.Images), b.Size(), b.Digest()}, format)
			}
			_, err = fmt.Fprintf(s.Out, "%s: whole: Kubernetes %s, %d components, %d images, %s, %s\n",
				args[0], m.Kubernetes, len(m.Components), len(m.Images), size(b.Size()), b.Digest())
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "output format: text, json or yaml")
	return cmd
}

// verified is a bundle that is whole.
type verified struct {
	Bundle     string `json:"bundle"`
	Kubernetes string `json:"kubernetes"`
	Components int    `json:"components"`
	Images     int    `json:"images"`
	SizeBytes  int64  `json:"sizeBytes"`
	Digest     string `json:"digest"`
}

func newInspect(s Streams) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect BUNDLE",
		Short: "Show what a bundle holds",
		Long:  "Show what a bundle holds.\n\nBUNDLE is a directory, a .tar.zst file, a registry reference or a version in the cache.",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			b, err := open(c, args[0])
			if err != nil {
				return err
			}
			if format != "text" {
				return printObject(s.Out, inspected{b.Digest(), b.Size(), b.Manifest()}, format)
			}
			return printTable(s.Out, b)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "text", "output format: text, json or yaml")
	return cmd
}

type inspected struct {
	Digest    string `json:"digest"`
	SizeBytes int64  `json:"sizeBytes"`
	bundle.Manifest
}

func printTable(w io.Writer, b *bundle.Bundle) error {
	m := b.Manifest()
	fmt.Fprintf(w, "Kubernetes  %s\nArch        %s\nSource      %s\nSize        %s\nDigest      %s\n\n",
		m.Kubernetes, strings.Join(m.Arches, ", "), m.Source, size(b.Size()), b.Digest())
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "COMPONENT\tVERSION\tARCH\tSIZE\tLICENCE")
	for _, c := range m.Components {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Version, c.Arch, size(c.Size), c.Licence)
	}
	fmt.Fprintln(tw, "\nIMAGE\tREFERENCE\tARCH\tSIZE\tLICENCE")
	for _, i := range m.Images {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", i.Name, i.Ref, i.Arch, size(i.Size()), i.Licence)
	}
	return tw.Flush()
}

func checkFormat(format string) error {
	switch format {
	case "text", "json", "yaml":
		return nil
	}
	return diag.List{{ID: "unknown-output-format", Severity: diag.Error, Message: fmt.Sprintf("%q is no output format", format), Hint: "name text, json or yaml"}}
}

func printObject(w io.Writer, v any, format string) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, strings.TrimRight(string(data), "\n"))
	return err
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
