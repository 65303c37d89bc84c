package etcdbackup

import (
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// secretDir holds the credentials of a host for the storage of backup copies.
const secretDir = "/etc/slipway/backup"

// SigningKey is the path of the key with which a host signs its backup sets. Hosts that
// create no sets do not have it.
const SigningKey = "/etc/slipway/backup-signing.key"

// HasCopies reports whether a host copies its snapshots to other storage. A host with only
// etcd does not, because it does not have, and must not receive, the keys of the CAs.
func HasCopies(c *v1alpha1.Cluster, h v1alpha1.Host) bool {
	b := c.Spec.Etcd.Backup
	return b != nil && len(b.Copies) > 0 && hostroles.RunsEtcd(c, h.Roles) && spec.HasRole(h, v1alpha1.RoleControlPlane)
}

// CopyTime is the timeout for copying a snapshot. It ends at the latest when the next
// snapshot is due.
func CopyTime(b *v1alpha1.EtcdBackup) time.Duration { return min(b.Every.Duration, op.AutoCopyTime) }

// autoCopies returns how a host copies its snapshots; nil if it does not.
func autoCopies(env module.Env, h *engine.Host) *op.AutoCopies {
	b := env.Cluster.Spec.Etcd.Backup
	if !HasCopies(env.Cluster, h.Host) {
		return nil
	}
	authority := AuthorityKeys()[0]
	out := &op.AutoCopies{
		Host: h.Name, Recipients: b.Recipients, EtcdType: env.Cluster.Spec.Etcd.Type, Authority: authority, Server: module.APIServerManifest,
		SigningKey:    SigningKey,
		Files:         backupSetFiles(env.Cluster),
		WithinSeconds: int64(CopyTime(b) / time.Second),
	}
	for _, to := range b.Copies {
		out.To = append(out.To, CopyTarget(to))
	}
	return out
}

// backupSetFiles returns the files of hosts that belong to a backup set.
func backupSetFiles(c *v1alpha1.Cluster) []string {
	return slices.Concat(AuthorityKeys(), EtcdKeys(), encryptionFiles(c))
}

// encryptionFiles returns the files that may have the encryption keys of API servers: the
// file of Slipway, and one of the user.
func encryptionFiles(c *v1alpha1.Cluster) []string {
	out := []string{module.EncryptionFile}
	if at := c.Spec.Kubernetes.APIServer.ExtraArgs[spec.EncryptionFlag]; at != "" {
		out = append(out, at)
	}
	return out
}

// AuthorityKeys returns the files without which a control plane cannot be restored; all
// others are created from them. The first is the certificate of the cluster CA.
func AuthorityKeys() []string {
	var out []string
	for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"} {
		out = append(out, "/etc/kubernetes/pki/"+name)
	}
	return out
}

// EtcdKeys returns the certificate and key of the etcd CA, on hosts with an etcd member.
func EtcdKeys() []string { return []string{module.EtcdCA, module.EtcdPKI + "/ca.key"} }

// CopyTarget returns how hosts and the manager reach the storage of copies.
func CopyTarget(to v1alpha1.EtcdCopy) op.CopyTarget {
	out := op.CopyTarget{Name: to.Name, Keep: to.Keep, Directory: to.Directory}
	if m := to.SSH; m != nil {
		out.SSH = &op.CopySSH{Address: m.Address, Port: m.Port, User: m.User, Directory: m.Directory, HostKey: m.HostKey}
	}
	if b := to.S3; b != nil {
		out.S3 = &op.CopyS3{
			Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Bucket, Prefix: b.Prefix,
			PathStyle: b.PathStyle == nil || *b.PathStyle,
		}
	}
	if to.Directory == "" {
		out.SecretFile = secretDir + "/" + to.Name + ".key"
	}
	return out
}

// copySecrets returns the credentials of a host for its copies, and the key that signs its
// sets.
func copySecrets(env module.Env) (list op.List) {
	sign := op.File{Path: SigningKey, Content: []byte(env.BackupKey.Reveal()), Mode: 0o600, Secret: true}
	for _, to := range env.Cluster.Spec.Etcd.Backup.Copies {
		file := CopyTarget(to).SecretFile
		if file == "" {
			continue
		}
		if len(list) == 0 {
			list = append(list, op.Dir{Path: secretDir, Mode: 0o700})
		}
		list = append(list, op.File{Path: file, Content: []byte(env.CopySecrets[to.Name].Reveal() + "\n"), Mode: 0o600, Secret: true})
	}
	return append(list, sign)
}
