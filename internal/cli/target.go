package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle"
	"slipway.dev/slipway/internal/release"
	"slipway.dev/slipway/internal/spec"
)

// problem returns an error with one diagnostic.
func problem(id, hint, format string, args ...any) error {
	return diag.List{{ID: id, Severity: diag.Error, Message: fmt.Sprintf(format, args...), Hint: hint}}
}

// fileFlag adds -f.
func fileFlag(cmd *cobra.Command, file *string, use string) {
	cmd.Flags().StringVarP(file, "file", "f", "", use)
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json") // the flag is there
}

// described is a cluster from a file.
type described struct {
	*spec.Loaded
	dir  string // the base of its relative paths
	path string // absolute; "" if it was not read from a file
}

// called returns a file's name for messages.
func called(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// maxFile limits the size of a cluster file or saved plan, in bytes, so that reading
// an endless device does not use up this machine's memory.
const maxFile = 64 << 20

// read reads a file; "-" is standard input. The file may be a pipe or a device.
// read does not wait for more data when ctx is done.
func (a *app) read(ctx context.Context, file string) ([]byte, string, error) {
	type content struct {
		data []byte
		dir  string
		err  error
	}
	come := make(chan content, 1)
	go func() { // ends with the program at the latest: a read cannot be cancelled
		data, dir, err := a.readAll(file)
		come <- content{data, dir, err}
	}()
	select {
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	case c := <-come:
		return c.data, c.dir, c.err
	}
}

func (a *app) readAll(file string) (data []byte, dir string, err error) {
	in := a.In
	if file == "-" {
		dir, err = os.Getwd()
	} else {
		var f *os.File
		if f, err = os.Open(file); err == nil {
			defer f.Close()
			in = f
			dir, err = filepath.Abs(filepath.Dir(file))
		}
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(in, maxFile+1))
	}
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("the file is larger than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, "", problem(idFile, "", "reading %s: %v", called(file), unwrapPath(err))
	}
	return data, dir, nil
}

// unwrapPath removes the path from an error, because the message already has it.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// load reads a cluster from a file's content and checks the files that it names.
// It prints warnings.
func (a *app) load(ctx context.Context, file string, data []byte, dir string) (*described, error) {
	cat, err := a.catalogue()
	if err != nil {
		return nil, err
	}
	paths := spec.Paths{Dir: dir, Home: a.dirs.User}
	loader := spec.Loader{
		Files: &paths,
		Supported: func(v string) error {
			_, err := cat.With(v, release.Components{}).Resolve(v) // the service checks the minor versions of bundles
			return err
		},
	}
	loader.Recorded = func(name string) *v1alpha1.Cluster {
		svc, err := a.svc(ctx)
		if err != nil {
			return nil // a later step that needs the service reports the error
		}
		c, _ := svc.Cluster(ctx, name) // nil if it is not in the state
		return c
	}
	loaded, err := loader.Load(called(file), data)
	if err != nil {
		return nil, err
	}
	a.warn(loaded.Warnings)
	if err := spec.Absolute(loaded.Cluster, paths); err != nil {
		return nil, err
	}
	d := &described{Loaded: loaded, dir: dir}
	if file != "" && file != "-" {
		d.path = filepath.Join(dir, filepath.Base(file))
	}
	return d, nil
}

// loadFile reads a cluster file. name, if it is not "", must be the name in the file.
func (a *app) loadFile(ctx context.Context, file, name string) (*described, error) {
	data, dir, err := a.read(ctx, file)
	if err != nil {
		return nil, err
	}
	d, err := a.load(ctx, file, data, dir)
	if err != nil {
		return nil, err
	}
	if name != "" && name != d.Cluster.Name {
		return nil, problem(idNameMismatch, "leave out the name, or give the right file",
			"%s describes cluster %s, not %s", called(file), d.Cluster.Name, name)
	}
	return d, nil
}

// thisHost describes a one-node cluster of this machine.
func (a *app) thisHost(ctx context.Context, name, kubernetes string) (*described, error) {
	host, err := a.env.Hostname()
	if err != nil {
		return nil, refuse(fmt.Errorf("reading the host name: %w", err))
	}
	host = label(host)
	if name == "" {
		name = host
	}
	text, err := spec.Sample(spec.SampleOptions{
		Name: name, Kubernetes: kubernetes, File: name + ".yaml",
		Hosts: []spec.HostFlag{{
			Address: "localhost", Name: host, Roles: []v1alpha1.Role{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker},
		}},
	})
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, refuse(err)
	}
	d, err := a.load(ctx, "", text, dir)
	if err != nil {
		return nil, err
	}
	if a.env.CgroupV1() { // without a file the user cannot allow it
		d.Cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"failCgroupV1": false}
		a.warn(diag.List{{
			ID: idOldCgroups, Severity: diag.Warning, Message: "this machine uses cgroup v1, which future kubelets will not support",
			Hint: "boot this machine with cgroup v2: kernel argument systemd.unified_cgroup_hierarchy=1",
		}})
	}
	return d, nil
}

var notLabel = regexp.MustCompile(`[^a-z0-9]+`)

// label converts a host's name to a DNS label.
func label(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	host = notLabel.ReplaceAllString(host, "-")
	if len(host) > 63 {
		host = host[:63]
	}
	if host = strings.Trim(host, "-"); host == "" {
		return "local"
	}
	return host
}

// named returns an error if name is not a valid cluster name.
func named(name string) error {
	problems := spec.NameProblems(name)
	if len(problems) == 0 {
		return nil
	}
	return problem(idName, "list the clusters: slipway get clusters", "%q is not a valid cluster name: %s", name, strings.Join(problems, "; "))
}

// which returns the name of the cluster to use: the argument, or the default
// cluster, or the only cluster.
func (a *app) which(ctx context.Context, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], named(args[0])
	}
	records, err := a.store()
	if err != nil {
		return "", err
	}
	if name, err := records.Default(); err != nil || name != "" {
		return name, refuse(err)
	}
	svc, err := a.svc(ctx)
	if err != nil {
		return "", err
	}
	list, err := svc.Clusters(ctx)
	if err != nil {
		return "", refuse(err)
	}
	switch len(list) {
	case 0:
		return "", problem(idNoCluster, "create a cluster (slipway create cluster), or give a cluster file with -f", "no clusters found")
	case 1:
		return list[0].Name, nil
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return "", problem(idWhichCluster, "give a cluster name, or set a default: slipway use NAME",
		"no cluster name given; clusters: %s", strings.Join(names, ", "))
}

// request returns a request for the cluster of the file, or without a file for the
// cluster that which returns.
func (a *app) request(ctx context.Context, kind lifecycle.Kind, file string, args []string) (lifecycle.Request, error) {
	if file != "" {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		d, err := a.loadFile(ctx, file, name)
		if err != nil {
			return lifecycle.Request{}, err
		}
		return a.described(kind, d), nil
	}
	name, err := a.which(ctx, args)
	if err != nil {
		return lifecycle.Request{}, err
	}
	return a.asked(lifecycle.Request{Kind: kind, Name: name}), nil
}

// chosen returns the service and the name of the cluster to use.
func (a *app) chosen(ctx context.Context, args []string) (lifecycle.Service, string, error) {
	name, err := a.which(ctx, args)
	if err != nil {
		return nil, "", err
	}
	svc, err := a.svc(ctx)
	return svc, name, err
}

func (a *app) described(kind lifecycle.Kind, d *described) lifecycle.Request {
	return a.asked(lifecycle.Request{
		Kind: kind, Cluster: d.Cluster, Name: d.Cluster.Name, Source: d.Source, File: d.path, Dir: d.dir,
	})
}

// passFlags adds the flags that ignore errors and findings of hosts.
func (a *app) passFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.ignoreErrors, "ignore-errors", false, "continue on other hosts when a host fails")
	cmd.Flags().StringArrayVar(&a.ignoreChecks, "ignore-check", nil,
		"ignore the precheck finding with this `id` (repeatable; saved with the operation)")
}

// changeFlags adds the flags that are common to commands that change hosts.
func (a *app) changeFlags(cmd *cobra.Command) {
	a.passFlags(cmd)
	breakFlag(cmd, &a.breakLock)
}

func breakFlag(cmd *cobra.Command, breaks *bool) {
	cmd.Flags().BoolVar(breaks, "break-lock", false, "take over a lock whose holder is not reachable")
}

// asked sets the values of the flags of passFlags and changeFlags in a request.
func (a *app) asked(r lifecycle.Request) lifecycle.Request {
	r.IgnoreChecks, r.IgnoreErrors, r.BreakLock = a.ignoreChecks, a.ignoreErrors, a.breakLock
	return r
}

// clusterNames completes the name of a cluster.
func (a *app) clusterNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	svc, err := a.svc(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := svc.Clusters(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
