package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/datadir"
)

// A worker is a process that works on the API of a Kubernetes cluster: the operator, or one operation.
type worker struct {
	*program
	kubeconfig, apiURL, cacheDir, archive, logFormat string
}

func (w *worker) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the ServiceAccount of the Pod)")
	f.StringVar(&w.apiURL, "api-url", "", "`URL` of the API for people (default: the URL that the process uses)")
	f.StringVar(&w.cacheDir, "cache-dir", "", "`directory` of bundles (default \"cache\" in the data directory)")
	f.StringVar(&w.archive, "archive-dir", withoutArchive, "`directory` of finished operations, or none to delete them")
	f.StringVar(&w.logFormat, "log-format", "text", "`format` of the log: text or json")
}

// open returns the client of the API and the settings of the controllers, and makes the directories.
func (w *worker) open(ctx context.Context) (client *rest.Config, s controllerSettings, closeArchive func() error, err error) {
	if w.archive != withoutArchive && !filepath.IsAbs(w.archive) {
		return nil, s, nil, diag.Refuse(idOperatorFlag, fmt.Sprintf("--archive-dir %q is not an absolute path", w.archive),
			"use a path such as /var/lib/slipwayd/archive, or none")
	}
	if s.log, err = newLog(w.Err, w.logFormat); err != nil {
		return nil, s, nil, err
	}
	controlplane.RedirectLogs(s.log)
	if client, err = w.loadClient(); err != nil {
		return nil, s, nil, err
	}
	dir := func(name string) string { return filepath.Join(w.dataDir, name) }
	s.backupDir, s.tempDir, s.cacheDir = dir(datadir.SnapshotsDir), dir("tmp"), cmp.Or(w.cacheDir, dir(datadir.CacheDir))
	s.url = cmp.Or(w.apiURL, client.Host)
	for _, path := range []string{s.backupDir, s.tempDir, s.cacheDir} {
		if err := os.MkdirAll(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, s, nil, fmt.Errorf("making a directory: %w", err)
		}
	}
	closeArchive = func() error { return nil }
	if files := openArchive(ctx, w.archive, "", s.log); files != nil {
		s.files, closeArchive = files, files.Close
	}
	return client, s, closeArchive, nil
}

// loadClient returns the configuration of the client of the API.
func (w *worker) loadClient() (client *rest.Config, err error) {
	const hint = "set --kubeconfig to the kubeconfig of the cluster whose Cluster objects the controllers read"
	if w.kubeconfig == "" {
		if client, err = rest.InClusterConfig(); err != nil {
			return nil, diag.Refuse(idOperatorFlag, fmt.Sprintf("reading the ServiceAccount of the Pod: %v", err), hint)
		}
	} else if client, err = clientcmd.BuildConfigFromFlags("", w.kubeconfig); err != nil {
		return nil, diag.Refuse(idOperatorFlag, fmt.Sprintf("reading the kubeconfig: %v", err), hint)
	}
	client.QPS = -1 // the API server limits its clients
	return client, nil
}
