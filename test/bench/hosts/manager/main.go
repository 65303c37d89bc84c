// Command manager is the command line with its records in a Kubernetes API, for the benchmark of
// many hosts. The command line itself has no such choice.
//
//	manager init os -f FILE …   runs a command
//	manager cluster-status      saves a Cluster and the largest status that a cluster of its size has
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/cli"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/store/kube"
)

// The environment of this program, besides the environment of the command line.
const (
	variableKubeconfig = "SLIPWAY_BENCH_KUBECONFIG" // of the API with the records
	variableNamespace  = "SLIPWAY_BENCH_NAMESPACE"
	variableDir        = "SLIPWAY_BENCH_DIR" // for backup sets and temporary files
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // logs of libraries would disturb the output
	ctx := context.Background()
	if len(os.Args) == 3 && os.Args[1] == "cluster-status" {
		if err := saveLargestStatus(ctx, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "manager:", err)
			os.Exit(1)
		}
		return
	}
	var m manager
	streams, env := cli.CurrentProcess()
	code := cli.Main(ctx, os.Args[1:], streams, env, m.newService)
	if err := m.close(); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// openRecords opens the records in the API that the environment names.
func openRecords() (*kube.Store, error) {
	client, err := clientcmd.BuildConfigFromFlags("", os.Getenv(variableKubeconfig))
	if err != nil {
		return nil, err
	}
	dir := os.Getenv(variableDir)
	return kube.New(kube.Config{
		Client: client, Namespace: os.Getenv(variableNamespace), BackupDir: filepath.Join(dir, "backups"), TempDir: dir,
	})
}

// A manager creates the service of the command line, once.
type manager struct{ files records.Files }

func (m *manager) newService(ctx context.Context, s cli.Settings) (cli.Service, error) {
	backend, err := openRecords()
	if err != nil {
		return nil, err
	}
	if m.files, err = backend.Files(ctx); err != nil {
		return nil, err
	}
	return cli.NewServiceWithRecords(s, backend, m.files), nil
}

func (m *manager) close() error {
	if m.files == nil {
		return nil
	}
	return m.files.Close()
}

// saveLargestStatus saves a Cluster of this many hosts, and its status when no node is ready: the
// status lists nodes with their messages only then.
func saveLargestStatus(ctx context.Context, hosts string) error {
	n, err := strconv.Atoi(hosts)
	if err != nil {
		return err
	}
	backend, err := openRecords()
	if err != nil {
		return err
	}
	object := largestCluster(n)
	if err := createCluster(ctx, object); err != nil {
		return fmt.Errorf("creating the Cluster: %w", err)
	}
	return backend.Clusters().SaveStatus(ctx, object.Name, object.Status)
}
