package savedstate

import (
	"cmp"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec"
)

// CopySSHSettings sets the SSH settings of an earlier description to the saved ones, because
// they may have changed since then. A host that is another machine now keeps its own.
func CopySSHSettings(c, recorded *v1alpha1.Cluster) {
	now := recorded.DeepCopy()
	c.Spec.SSH = now.Spec.SSH
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		at := spec.FindHost(now.Spec.Hosts, h.Name)
		if at < 0 {
			continue
		}
		if is := now.Spec.Hosts[at]; is.Address == h.Address && is.InternalAddress == h.InternalAddress {
			h.SSH = is.SSH
		}
	}
}

// CopyPasswords copies the passwords that are written in the cluster file itself from the
// saved cluster, because plans do not contain passwords.
func CopyPasswords(c, recorded *v1alpha1.Cluster) {
	if recorded == nil {
		return
	}
	c.Spec.SSH.Password = cmp.Or(c.Spec.SSH.Password, recorded.Spec.SSH.Password)
	known := map[string]string{}
	for _, h := range recorded.Spec.Hosts {
		known[h.Name] = h.SSH.Password
	}
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		h.SSH.Password = cmp.Or(h.SSH.Password, known[h.Name])
	}
}
