package op

// Self installs the program of the node helper at Path, for units that run it without a
// manager. Another version has different content.
type Self struct {
	Path string `json:"path"`
}

// KindSelf is the kind of Self.
const KindSelf Kind = "helper"

// Kind is KindSelf.
func (Self) Kind() Kind { return KindSelf }

// Target is the path of the program.
func (o Self) Target() string { return o.Path }
