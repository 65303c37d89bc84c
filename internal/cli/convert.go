package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/cli/view"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/kubekey"
)

// convertFlags holds the flags of convert.
type convertFlags struct {
	file, out, kubernetes string
	allowLoss             bool
}

// convertCommand holds what "convert" needs.
type convertCommand struct{ *workspace }

func newConvertCommand(c convertCommand) *cobra.Command {
	var o convertFlags
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert a KubeKey file to a cluster file",
		Long: `Reads a KubeKey Cluster (kubekey.kubesphere.io/v1alpha2) and writes a cluster file.
The command does not connect to hosts. It writes KubeKey's default values explicitly,
so that the cluster does not change. It does not copy passwords and keys; the file marks
where they are required.

A field that affects the cluster and that Slipway does not support is an error;
--allow-loss omits the field with a warning. Fields without an effect cause warnings.
With --out, hook scripts are written to a directory next to the file.`,
		Example: `  slipway convert -f config-sample.yaml --out prod.yaml
  slipway convert -f config-sample.yaml --kubernetes v1.37.1 --allow-loss --out prod.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.convertFile(cmd.Context(), o) },
	}
	addFileFlag(cmd, &o.file, "the KubeKey file; - is standard input")
	_ = cmd.MarkFlagRequired("file") // the flag is there
	cmd.Flags().StringVar(&o.out, "out", "", "write to this `file` instead of standard output")
	cmd.Flags().StringVar(&o.kubernetes, "kubernetes", "", "write this Kubernetes `version` instead of the version in the file")
	cmd.Flags().BoolVar(&o.allowLoss, "allow-loss", false, "omit fields that Slipway does not support")
	program.CompleteVersion(cmd, c.loadCatalogue)
	return cmd
}

func (c convertCommand) convertFile(ctx context.Context, o convertFlags) error {
	data, dir, err := c.readInput(ctx, o.file)
	if err != nil {
		return err
	}
	cat, err := c.loadCatalogue()
	if err != nil {
		return err
	}
	opts := kubekey.Options{
		File: displayFileName(o.file), Kubernetes: o.kubernetes, Default: cat.DefaultVersion(), AllowLoss: o.allowLoss,
		Supported: func(v string) error {
			_, err := cat.ResolveVersion(v)
			return err
		},
	}
	if o.out != "" {
		base := filepath.Base(o.out)
		opts.Scripts = strings.TrimSuffix(base, filepath.Ext(base)) + "-hooks"
		opts.Resolve = func(name string) string { return relativeTo(filepath.Dir(o.out), dir, name) }
	}
	r, err := kubekey.Convert(data, opts)
	if err != nil {
		return err
	}
	c.printDiagnostics(r.Warnings)
	if o.out == "" {
		return c.writeDocument(r.Text)
	}
	return c.writeConverted(o.out, r)
}

// relativeTo returns the path of a file for use in the directory out. name is relative to
// the directory source.
func relativeTo(out, source, name string) string {
	if strings.HasPrefix(name, "~") || filepath.IsAbs(name) {
		return name
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return filepath.Join(source, name)
	}
	if out == source {
		return name
	}
	rel, err := filepath.Rel(out, filepath.Join(source, name))
	if err != nil {
		return filepath.Join(source, name)
	}
	return rel
}

// writeConverted writes the file and its scripts. It writes none of them if one already
// exists.
func (c convertCommand) writeConverted(out string, r *kubekey.Result) error {
	paths := spec.Paths{Dir: filepath.Dir(out)}
	scripts := []string{}
	for name := range r.Scripts {
		scripts = append(scripts, name)
	}
	slices.Sort(scripts)
	for _, name := range append([]string{filepath.Base(out)}, scripts...) {
		if _, err := os.Lstat(paths.Resolve(name)); !c.yes && !errors.Is(err, fs.ErrNotExist) {
			return newProblem(idFile, "give another file, or use --yes to overwrite it", "%s already exists", paths.Resolve(name))
		}
	}
	d, err := c.findDirectories()
	if err != nil {
		return err
	}
	for _, name := range scripts {
		dir := filepath.Dir(paths.Resolve(name))
		if err := safefile.Mkdir(dir, 0o755); err == nil {
			if err := d.Owner.GiveFiles(dir); err != nil {
				return markRefused(err)
			}
		} else if !errors.Is(err, fs.ErrExist) {
			return newProblem(idFile, "", "creating %s: %v", dir, unwrapPath(err))
		}
		if err := c.writeNewFile(paths.Resolve(name), r.Scripts[name], 0o755); err != nil {
			return err
		}
	}
	if err := c.writeNewFile(out, r.Text, 0o644); err != nil {
		return err
	}
	if c.format != view.Text {
		return view.WriteData(c.Out, c.format, map[string]any{"file": out, "scripts": scripts, "warnings": r.Warnings})
	}
	c.printMessage("Wrote %s.\nNext: slipway plan -f %s", out, out)
	return nil
}
