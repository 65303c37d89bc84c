package spec

import (
	"strings"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
)

// CheckCopyTargets returns the problems of recipients and copy targets outside of a cluster,
// such as the copy targets of the management server. It sets their defaults, and makes names
// of files absolute. The paths of the diagnostics begin at the fields of b.
func CheckCopyTargets(b *v1alpha1.EtcdBackup, p Paths) diag.List {
	c := &v1alpha1.Cluster{}
	c.Spec.Etcd.Backup = b
	setBackupDefaults(b)
	v := &validator{c: c}
	backupValidator{v}.checkBackup(c.Spec.Etcd)
	fileValidator{v}.checkCopyFiles(p)
	if err := MakePathsAbsolute(c, p); err != nil {
		v.refuse(idFileMissing, pathBackup, err.Error(), "run the command in an existing directory")
	}
	for i := range v.found {
		v.found[i].Path = strings.TrimPrefix(v.found[i].Path, pathBackup+".")
	}
	return v.found
}
