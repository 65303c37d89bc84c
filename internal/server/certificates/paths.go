package certificates

import (
	"path/filepath"
	"time"
)

const (
	// DefaultLifetime is the default lifetime of the serving and the administrator's
	// certificate.
	DefaultLifetime = 90 * 24 * time.Hour
	// MinLifetime is the shortest lifetime that a user may select.
	MinLifetime = time.Hour
)

// AdminKubeconfigIn returns the path of the administrator's kubeconfig in a directory of
// certificates.
func AdminKubeconfigIn(dir string) string { return filepath.Join(dir, kubeconfigFile) }
