package op

// InstallHelper installs the program of the node helper at Path, for units that run it without a
// manager. Another version has different content.
type InstallHelper struct {
	Path string `json:"path"`
}

// KindInstallHelper is the kind of InstallHelper.
const KindInstallHelper Kind = "helper"

// Kind is KindInstallHelper.
func (InstallHelper) Kind() Kind { return KindInstallHelper }

// Target is the path of the program.
func (o InstallHelper) Target() string { return o.Path }
