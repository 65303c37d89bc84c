package precheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/spec/hostroles"
)

// checkLeftovers reports files and processes of another cluster: one finding for each kind,
// whatever the number of files.
func (r *report) checkLeftovers() {
	for _, kind := range []struct {
		is                facts.Leftover
		id, found, remedy string
	}{
		{
			facts.LeftoverCluster, idLeftovers, "has files of another cluster",
			"remove the other cluster, if it is no longer needed, with the tool that created it, such as kubeadm reset -f",
		},
		{
			facts.LeftoverRuntime, idRuntime, "has another container runtime",
			"stop the runtime and remove its package: Slipway installs its own containerd in the same directories",
		},
		{
			facts.LeftoverNetwork, idOtherNetwork, "has configuration files of another pod network",
			"remove these files: containerd uses the first file by name, which may not be the file of this cluster",
		},
		{
			facts.LeftoverAddresses, idOtherNetwork, "has addresses reserved for pods of another cluster",
			"run rm -r " + path.Dir(facts.Reservations) + " on the host: new pods cannot get these addresses",
		},
	} {
		var paths []string
		for path, is := range facts.LeftoverPaths() {
			if is == kind.is && slices.Contains(r.host.Facts.Present, path) {
				paths = append(paths, path)
			}
		}
		if slices.Sort(paths); len(paths) > 0 && (r.isNode() || kind.is == facts.LeftoverCluster) {
			r.fail(kind.id, kind.remedy, "%s: %s", kind.found, joinItems(paths))
		}
	}
	r.checkLinks()
	r.checkDataDirs()
	r.checkReplacedFiles()
}

// checkLinks reports interfaces of another pod network. The interfaces of this cluster
// have the same names, and are removed with it.
func (r *report) checkLinks() {
	var found, remedies []string
	for _, link := range facts.PodNetworkLinks() {
		if !r.isNode() || !slices.Contains(r.host.Facts.Links, link) {
			continue
		}
		var addresses []string
		for _, a := range r.host.Facts.Addresses {
			if a.Link == link {
				addresses = append(addresses, a.Prefix)
			}
		}
		remedies = append(remedies, "ip link delete "+link)
		if len(addresses) > 0 {
			link += " (" + joinItems(addresses) + ")"
		}
		found = append(found, link)
	}
	if len(found) > 0 {
		r.fail(idOtherNetwork, fmt.Sprintf("run %s on the host, or reboot the host", strings.Join(remedies, "; ")),
			"has network interfaces of another pod network: %s", joinItems(found))
	}
}

// checkDataDirs reports directories for data of a node that are not empty. etcd needs
// an empty one. In the others, existing directories remain when the host leaves the
// cluster, with everything that the cluster has written into them.
func (r *report) checkDataDirs() {
	filled := func(dir string) bool { return slices.Contains(r.host.Facts.Filled, dir) }
	if hostroles.RunsEtcd(r.cluster, r.host.Spec.Roles) && filled(facts.DirEtcd) && !slices.Contains(r.host.Facts.Present, facts.EtcdData) {
		r.fail(idLeftovers, "move the content of the directory away; lost+found can remain",
			"%s is not empty, but etcd keeps its data there", facts.DirEtcd)
	}
	var dirs []string
	for _, dir := range facts.DataDirs(r.cluster) {
		if r.isNode() && filled(dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) > 0 {
		r.warn(idNotEmpty, "move the content away if nothing needs it: delete can then restore the host completely",
			"has content in %s; delete removes only the files and directories that were added directly in these directories", joinItems(dirs))
	}
}

// checkReplacedFiles reports files of the host that Slipway replaces with its own.
func (r *report) checkReplacedFiles() {
	if !r.isNode() {
		return
	}
	var found []string
	for _, path := range facts.ReplacedFiles(r.cluster) {
		if slices.Contains(r.host.Facts.Present, path) {
			found = append(found, path)
		}
	}
	for _, u := range r.host.Facts.Units {
		switch {
		case !slices.Contains(facts.NodeUnits(r.cluster), u.Name):
		case u.Running:
			found = append(found, u.Name+" (running)")
		case u.File != "":
			found = append(found, u.Name)
		}
	}
	if len(found) > 0 {
		r.warn(idReplaced, "stop here if other programs on the host need these files; delete cluster restores them",
			"has %s; Slipway replaces them with its own", joinItems(found))
	}
}

// checkUnitCommands reports drop-ins that replace the command of a unit of Slipway. On
// a running node they may have been added on purpose.
func (r *report) checkUnitCommands() {
	units := map[string]bool{facts.EtcdUnit: hostroles.RunsEtcd(r.cluster, r.host.Spec.Roles), facts.RegistryUnit: r.isRegistry()}
	for _, name := range facts.NodeUnits(r.cluster) {
		units[name] = r.isNode()
	}
	for _, u := range r.host.Facts.Units {
		if !units[u.Name] || len(u.Commands) == 0 {
			continue
		}
		report := r.fail
		if r.isOwnHost() {
			report = r.warn
		}
		files := strings.Join(u.Commands, " ")
		report(idUnitDropIn, fmt.Sprintf("remove the package that installed the file, or run rm %s; systemctl daemon-reload", files),
			"%s replaces the command of %s, which then runs without the settings of Slipway", joinItems(u.Commands), u.Name)
	}
}
