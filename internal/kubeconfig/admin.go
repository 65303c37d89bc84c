package kubeconfig

import (
	"errors"
	"fmt"
	"net/url"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/internal/pki"
)

// maxAdmin limits the size of an admin kubeconfig; kubeadm's have about 6 KiB.
const maxAdmin = 1 << 20

// adminUser is the name that kubeadm gives the user of an admin kubeconfig.
const adminUser = "kubernetes-admin"

// An Admin holds the admin kubeconfig of one cluster. These fields are all that
// Slipway saves, prints, merges into other kubeconfigs, or gives to kubectl: a
// kubeconfig with others can run programs, send files away, or skip the
// verification of the server.
type Admin struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Server is the URL of the API (https), and TLSServerName the name that its
	// certificate is verified for, if that is another one.
	Server, TLSServerName string
	// CA, Certificate and Key are in PEM form.
	CA, Certificate, Key []byte
}

// A file is an Admin as YAML or JSON. It is the allow-list: it has no field
// that an Admin does not have.
type file struct {
	APIVersion     string        `json:"apiVersion"`
	Kind           string        `json:"kind"`
	CurrentContext string        `json:"current-context"`
	Clusters       []fileCluster `json:"clusters"`
	Contexts       []fileContext `json:"contexts"`
	Users          []fileUser    `json:"users"`
}

type fileCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		CA            []byte `json:"certificate-authority-data"`
		Server        string `json:"server"`
		TLSServerName string `json:"tls-server-name,omitempty"`
	} `json:"cluster"`
}

type fileContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type fileUser struct {
	Name string `json:"name"`
	User struct {
		Certificate []byte `json:"client-certificate-data"`
		Key         []byte `json:"client-key-data"`
	} `json:"user"`
}

// ParseAdmin reads an admin kubeconfig and refuses any field that an Admin does
// not have. The name of the cluster is the one in the file.
func ParseAdmin(text []byte) (Admin, error) {
	var f file
	if len(text) > maxAdmin {
		return Admin{}, fmt.Errorf("it has %d bytes; the limit is %d", len(text), maxAdmin)
	}
	// Older versions of Slipway kept this field, which nothing reads.
	type withPreferences struct {
		*file
		Preferences struct{} `json:"preferences"`
	}
	if err := yaml.UnmarshalStrict(text, &withPreferences{file: &f}); err != nil {
		return Admin{}, fmt.Errorf("only the address of the API and certificates are allowed: %w", err)
	}
	if len(f.Clusters) != 1 || len(f.Contexts) != 1 || len(f.Users) != 1 {
		return Admin{}, errors.New("it must have one cluster, one user and one context")
	}
	return f.currentAdmin()
}

// currentAdmin returns the cluster and the user of the current context.
func (f file) currentAdmin() (Admin, error) {
	if f.Kind != "Config" || f.APIVersion != "v1" {
		return Admin{}, errors.New("it is not a Config of version v1")
	}
	var a Admin
	var user string
	for _, c := range f.Contexts {
		if c.Name == f.CurrentContext && f.CurrentContext != "" {
			a.Cluster, user = c.Context.Cluster, c.Context.User
		}
	}
	for _, c := range f.Clusters {
		if c.Name == a.Cluster && a.Server == "" {
			a.Server, a.TLSServerName, a.CA = c.Cluster.Server, c.Cluster.TLSServerName, c.Cluster.CA
		}
	}
	for _, u := range f.Users {
		if u.Name == user && a.Key == nil {
			a.Certificate, a.Key = u.User.Certificate, u.User.Key
		}
	}
	return a, a.checkUsable()
}

// checkUsable refuses an Admin with which the API cannot be used safely.
func (a Admin) checkUsable() error {
	u, err := url.Parse(a.Server)
	switch {
	case a.Cluster == "" || a.Server == "":
		return errors.New("it has no current context with cluster and user")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil:
		return errors.New("its server is not an https:// URL")
	case len(a.CA) == 0:
		return errors.New("it has no CA certificate")
	case len(a.Certificate) == 0 || len(a.Key) == 0:
		return errors.New("its user has no client certificate with a key")
	}
	return nil
}

// Bytes returns the kubeconfig as YAML.
func (a Admin) Bytes() ([]byte, error) {
	if err := a.checkUsable(); err != nil {
		return nil, fmt.Errorf("writing the admin kubeconfig: %w", err)
	}
	context := adminUser + "@" + a.Cluster
	f := file{
		APIVersion: "v1", Kind: "Config", CurrentContext: context,
		Clusters: []fileCluster{{Name: a.Cluster}}, Contexts: []fileContext{{Name: context}}, Users: []fileUser{{Name: adminUser}},
	}
	f.Clusters[0].Cluster.CA, f.Clusters[0].Cluster.Server, f.Clusters[0].Cluster.TLSServerName = a.CA, a.Server, a.TLSServerName
	f.Contexts[0].Context.Cluster, f.Contexts[0].Context.User = a.Cluster, adminUser
	f.Users[0].User.Certificate, f.Users[0].User.Key = a.Certificate, a.Key
	return yaml.Marshal(f)
}

// RecordedCA returns the CA certificates in a kubeconfig that Slipway has
// saved; nil if it has none, or is damaged.
func RecordedCA(text []byte) []byte {
	var f file
	if yaml.Unmarshal(text, &f) != nil {
		return nil
	}
	a, _ := f.currentAdmin() // only the CA counts
	if _, err := pki.ParseAuthorities(a.CA); err != nil {
		return nil
	}
	return a.CA
}
