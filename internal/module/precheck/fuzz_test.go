package precheck

import (
	"testing"
	"time"

	"slipway.dev/slipway/internal/node/op"
)

// FuzzFindings: any facts and any cluster file can be checked.
func FuzzFindings(f *testing.F) {
	f.Add("6.1.0", "10.0.0.1/8", "10.0.0.0/8", "10.244.0.0/16", "192.0.2.12", "v1.37.1", uint64(1), uint64(0))
	f.Add("5", "fe80::1%eth0/64", "::/0", "::/0", "::ffff:192.0.2.12", "1", uint64(1)<<63, uint64(1)<<63)
	f.Add("99999999999999999999.1", "0.0.0.0/0", "default", "0.0.0.0/0", "", "", uint64(0), uint64(5))
	f.Fuzz(func(t *testing.T, kernel, address, route, cidr, internal, version string, free, total uint64) {
		c, hosts := sound()
		c.Spec.Kubernetes.Version = version
		c.Spec.Network.PodCIDR = []string{cidr}
		h := hosts[1].Facts
		h.Kernel = kernel
		h.Addresses = append(h.Addresses, op.Address{Link: address, Prefix: address})
		h.Routes = []string{route}
		hosts[1].Spec.InternalAddress = internal
		disk(h, "*", func(d *op.Disk) { d.FreeBytes, d.TotalBytes, d.Mount = free, total, kernel })
		hosts[1].Skew = time.Duration(free)
		for _, d := range CheckHosts(c, hosts, Options{ImagesBytes: int64(total), Ignore: []string{kernel}}) {
			if d.ID == "" || d.Message == "" {
				t.Errorf("a finding without id or text: %+v", d)
			}
		}
	})
}
