package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/sample"
)

// A clusterFile is a cluster from a file.
type clusterFile struct {
	*spec.Loaded
	dir  string // the base of its relative paths
	path string // absolute; "" if it was not read from a file
}

// clusterFiles reads cluster files.
type clusterFiles struct {
	*workspace
	open opener[clusterReader]
}

// loadCluster reads a cluster from a file's content and checks the files that it names.
// It prints warnings.
func (f *clusterFiles) loadCluster(ctx context.Context, file string, data []byte, dir string) (*clusterFile, error) {
	cat, err := f.loadCatalogue()
	if err != nil {
		return nil, err
	}
	paths := spec.Paths{Dir: dir, Home: f.dirs.User}
	loader := spec.Loader{
		Files:     &paths,
		Supported: cat.CheckVersion, // the service checks the minor versions of bundles
	}
	loader.Recorded = func(name string) *v1alpha1.Cluster {
		svc, err := f.open(ctx)
		if err != nil {
			return nil // a later step that needs the service reports the error
		}
		c, _ := svc.Cluster(ctx, name) // nil if it is not in the state
		return c
	}
	loaded, err := loader.Load(displayFileName(file), data)
	if err != nil {
		return nil, err
	}
	f.printDiagnostics(loaded.Warnings)
	if err := spec.MakePathsAbsolute(loaded.Cluster, paths); err != nil {
		return nil, err
	}
	d := &clusterFile{Loaded: loaded, dir: dir}
	if file != "" && file != "-" {
		d.path = filepath.Join(dir, filepath.Base(file))
	}
	return d, nil
}

// readClusterFile reads a cluster file. If args has a name, it must be the name in the
// file.
func (f *clusterFiles) readClusterFile(ctx context.Context, file string, args []string) (*clusterFile, error) {
	data, dir, err := f.readInput(ctx, file)
	if err != nil {
		return nil, err
	}
	d, err := f.loadCluster(ctx, file, data, dir)
	if err != nil {
		return nil, err
	}
	return d, d.checkName(file, args)
}

// checkName returns an error if the arguments name another cluster than the file.
func (d *clusterFile) checkName(file string, args []string) error {
	if len(args) == 0 || args[0] == d.Cluster.Name {
		return nil
	}
	return newProblem(idNameMismatch, "leave out the name, or give the right file",
		"%s describes cluster %s, not %s", displayFileName(file), d.Cluster.Name, args[0])
}

// setBundle makes the cluster use a bundle of the command line, unless name is "".
func (d *clusterFile) setBundle(name string) (err error) {
	if name != "" {
		d.Cluster.Spec.Bundle, err = resolveBundlePath(name)
	}
	return err
}

// describeThisHost describes a one-node cluster of this machine.
func (f *clusterFiles) describeThisHost(ctx context.Context, name, kubernetes string) (*clusterFile, error) {
	host, err := f.env.Hostname()
	if err != nil {
		return nil, markRefused(fmt.Errorf("reading the host name: %w", err))
	}
	host = toDNSLabel(host)
	if name == "" {
		name = host
	}
	text, err := sample.Write(sample.Options{
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
		return nil, markRefused(err)
	}
	d, err := f.loadCluster(ctx, "", text, dir)
	if err != nil {
		return nil, err
	}
	if f.env.IsCgroupV1() { // without a file the user cannot allow it
		d.Cluster.Spec.Kubernetes.Kubelet.Config = map[string]any{"failCgroupV1": false}
		f.printDiagnostics(diag.List{{
			ID: idOldCgroups, Severity: diag.Warning, Message: "this machine uses cgroup v1, which future kubelets will not support",
			Hint: "boot this machine with cgroup v2: kernel argument systemd.unified_cgroup_hierarchy=1",
		}})
	}
	return d, nil
}

// loadFileOrThisHost returns the cluster of a file, or without a file a one-node cluster
// of this machine.
func (f *clusterFiles) loadFileOrThisHost(ctx context.Context, file, kubernetes string, args []string) (*clusterFile, error) {
	if file == "" {
		return f.describeThisHost(ctx, strings.Join(args, ""), kubernetes) // args has at most one name
	}
	return f.readClusterFile(ctx, file, args)
}

var nonLabelCharacters = regexp.MustCompile(`[^a-z0-9]+`)

// toDNSLabel converts a host's name to a DNS label.
func toDNSLabel(host string) string {
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	host = nonLabelCharacters.ReplaceAllString(host, "-")
	if len(host) > 63 {
		host = host[:63]
	}
	if host = strings.Trim(host, "-"); host == "" {
		return "local"
	}
	return host
}
