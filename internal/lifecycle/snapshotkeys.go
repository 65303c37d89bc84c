package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	recovery "slipway.dev/slipway/internal/module/backup"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/spec"
)

// pkiDir is where kubeadm keeps keys.
const pkiDir = "/etc/kubernetes/pki/"

// keep reads what goes into a set beside the snapshot, and the cluster's
// authority, by which the set is known to be its own.
func (m *snapshotting) keep(ctx context.Context) (small []backup.Content, authority string, err error) {
	c := spec.Redacted(m.looker.env.Cluster)
	c.Status = v1alpha1.ClusterStatus{}
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, "", err
	}
	small = append(small, backup.Content{Name: backup.ClusterName, Data: text})
	note(m.progress, "", "reading the keys of the cluster's authorities")
	control, err := m.filesOf(ctx, func(h v1alpha1.Host) bool { return spec.HasRole(h, v1alpha1.RoleControlPlane) }, recovery.AuthorityKeys())
	if err != nil {
		return nil, "", err
	}
	small = append(small, control...)
	if c.Spec.Etcd.External == nil { // else its authority is others'
		etcd, err := m.filesOf(ctx, func(h v1alpha1.Host) bool { return facts.RunsEtcd(c, h.Roles) }, recovery.EtcdKeys())
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

// certificateBytes is the first certificate of a file, however it is written; the
// text, if there is none.
func certificateBytes(text []byte) []byte {
	c, err := pki.Certificate(text)
	if err != nil {
		return text
	}
	return c.Raw
}

// filesOf reads files on the first of the chosen hosts that has the first of
// them, with the encryption configuration that its API server goes by.
func (m *snapshotting) filesOf(ctx context.Context, chosen func(v1alpha1.Host) bool, paths []string) ([]backup.Content, error) {
	var last error
	for _, h := range m.looker.hosts {
		if h.conn == nil || h.err != nil || !chosen(h.spec) {
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
		at, err := module.EncryptionOf(found[module.APIServerManifest])
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
		last = fmt.Errorf("no host that answers has %s", paths[0])
	}
	return nil, refused(idBackupKeys, "the keys of the cluster's authorities cannot be read, and without them a backup is worth little: "+last.Error(),
		"see which hosts answer: slipway cluster-info "+m.report.Name)
}

// readFiles are the contents of files on a host; those that are missing have
// none.
func readFiles(ctx context.Context, h *hostLook, paths []string) (map[string][]byte, error) {
	var ops op.List
	for _, p := range paths {
		ops = append(ops, op.ReadFile{Path: p, Secret: true})
	}
	results, err := h.conn.Check(ctx, ops)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, r := range results {
		if r.Error != nil {
			return nil, fmt.Errorf("%s: %w", h.spec.Name, r.Error)
		}
		out[r.Target] = r.Output
	}
	return out, nil
}
