package backups

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/event"
	"slipway.dev/slipway/internal/lifecycle/inspect"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/module/etcdbackup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// pkiDir is the directory in which kubeadm keeps keys.
const pkiDir = "/etc/kubernetes/pki/"

// readSetFiles reads the files that a set contains besides the snapshot, and the id of the
// cluster CA, which shows that the set belongs to the cluster.
func (m *snapshotting) readSetFiles(ctx context.Context) (small []backup.Content, authority string, err error) {
	c := m.session.Env.PublicDescription(m.session.Env.Cluster)
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, "", err
	}
	small = append(small, backup.Content{Name: backup.ClusterName, Data: text})
	event.SendNote(m.progress, "", "reading the keys of the cluster's CAs")
	control, err := m.filesOf(ctx, func(h v1alpha1.Host) bool { return spec.HasRole(h, v1alpha1.RoleControlPlane) },
		etcdbackup.AuthorityKeys())
	if err != nil {
		return nil, "", err
	}
	small = append(small, control...)
	if c.Spec.Etcd.External == nil { // otherwise the etcd CA belongs to others
		etcd, err := m.filesOf(ctx, func(h v1alpha1.Host) bool { return hostroles.RunsEtcd(c, h.Roles) }, etcdbackup.EtcdKeys())
		if err != nil {
			return nil, "", err
		}
		small = append(small, etcd...)
	}
	for _, f := range control {
		if f.Name == backup.HostFile(pkiDir+"ca.crt") {
			sum := sha256.Sum256(certificateBytes(f.Data))
			authority = hex.EncodeToString(sum[:])
		}
	}
	return small, authority, nil
}

// certificateBytes returns the first certificate of a file in DER form, or the text if
// there is none.
func certificateBytes(text []byte) []byte {
	c, err := pki.ParseCertificate(text)
	if err != nil {
		return text
	}
	return c.Raw
}

// filesOf reads files from the first of the chosen hosts that has the first file, and the
// encryption configuration that its API server uses.
func (m *snapshotting) filesOf(ctx context.Context, chosen func(v1alpha1.Host) bool, paths []string) ([]backup.Content, error) {
	var last error
	for _, h := range m.session.Hosts {
		if h.Conn == nil || h.Err != nil || !chosen(h.Spec) {
			continue
		}
		found, err := readFiles(ctx, h, append(slices.Clone(paths), module.APIServerManifest))
		if err != nil {
			last = err
			continue
		}
		if len(found[paths[0]]) == 0 {
			continue
		}
		at, err := module.FindEncryptionFile(found[module.APIServerManifest])
		if err == nil && at != "" {
			var more map[string][]byte
			more, err = readFiles(ctx, h, []string{at})
			found[at], paths = more[at], append(slices.Clone(paths), at)
		}
		if err != nil {
			return nil, err
		}
		var out []backup.Content
		for _, p := range paths {
			if len(found[p]) > 0 {
				out = append(out, backup.Content{Name: backup.HostFile(p), Data: found[p]})
			}
		}
		return out, nil
	}
	if last == nil {
		last = fmt.Errorf("no reachable host has %s", paths[0])
	}
	return nil, diag.Refuse(idBackupKeys, "cannot read the keys of the cluster's CAs, which a useful backup needs: "+last.Error(),
		"check which hosts are reachable: slipway cluster-info "+m.report.Name)
}

// readFiles returns the contents of files on a host, empty for missing files.
func readFiles(ctx context.Context, h *inspect.Host, paths []string) (map[string][]byte, error) {
	var ops op.List
	for _, p := range paths {
		ops = append(ops, op.ReadFile{Path: p, Secret: true})
	}
	results, err := h.Conn.Check(ctx, ops)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, r := range results {
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %w", h.Spec.Name, r.Error)
		}
		out[r.Target] = r.Output
	}
	return out, nil
}
