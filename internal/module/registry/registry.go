// Package registry sets up the private registry on a host: program, certificate, login,
// and the images of the bundle.
package registry

import (
	"embed"
	"path"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/spec"
)

//go:embed templates
var files embed.FS

const (
	// programs is a separate directory, because a host may have another registry.
	programs   = "/usr/local/lib/slipway/registry"
	program    = programs + "/registry"
	configFile = module.RegistryDir + "/config.yml"
	unitFile   = "/etc/systemd/system/" + module.RegistryUnit
	// user is the user that runs the registry, and runDir its runtime directory, which
	// systemd creates.
	user   = "slipway-registry"
	runDir = "/run/" + user

	stepCertificate = "registry.certificate"
	stepService     = "registry.service"
)

// SetUpRegistry is the module that sets up the private registry; it is empty for a
// cluster without a private registry.
func SetUpRegistry(env module.Env) engine.Module {
	m := engine.Module{Name: "registry"}
	if env.Registry == nil {
		return m
	}
	m.Tasks = []engine.Task{
		{
			ID: "registry.programs", Title: "install registry", On: env.IsRegistry, Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				return module.FetchAndUnpack(s, "registry", "usr/local/bin/", programs)
			},
		},
		{
			ID: stepCertificate, Title: "create registry certificate", On: env.IsRegistry,
			Ops: func(s *engine.Scope) (op.List, error) { return certificateOps(env, s.Host()), nil },
		},
		usersTask(env),
		{
			ID: stepService, Title: "set up registry", On: env.IsRegistry, Consumes: []engine.KeyRef{keyUsers.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) { return serviceOps(env, engine.GetValue(s, keyUsers)) },
		},
		{
			// This is not part of the step of the service: if the login fails, the earlier
			// steps must be able to repair the registry.
			ID: "registry.serves", Title: "check registry login", On: env.IsRegistry, Timeout: 3 * time.Minute,
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.RegistryServes{RegistryClient: env.RegistryClient(), TimeoutSeconds: 120}}, nil
			},
		},
		{
			ID: "registry.images", Title: "push images to registry", On: env.IsRegistry, Timeout: time.Hour,
			Consumes: []engine.KeyRef{module.KeyContent.Ref()},
			Ops: func(s *engine.Scope) (op.List, error) {
				images, err := imagesToPush(engine.GetValue(s, module.KeyContent).Images())
				return op.List{op.PushImages{RegistryClient: env.RegistryClient(), Images: images}}, err
			},
		},
	}
	return m
}

// certificateOps returns the certificate of the registry, and the CA that nodes trust
// for it. The key of a CA created by Slipway is on the host, which renews the
// certificate automatically.
func certificateOps(env module.Env, h *engine.Host) op.List {
	r := env.Registry
	list := op.List{op.Dir{Path: path.Dir(module.RegistryDir), Mode: 0o755}, op.Dir{Path: module.RegistryDir, Mode: 0o700}}
	if r.CA != nil {
		list = append(list, op.File{Path: module.RegistryTrusted, Content: r.CA})
	}
	if r.Cert != nil {
		list = append(list,
			op.File{Path: module.RegistryKey, Content: r.Key, Mode: 0o600, Secret: true},
			op.File{Path: module.RegistryCert, Content: r.Cert},
		)
		return append(list, op.RevertStep{Step: stepCertificate})
	}
	return append(list,
		op.File{Path: module.RegistryCA, Content: r.CA},
		op.File{Path: module.RegistryCAKey, Content: r.CAKey, Mode: 0o600, Secret: true},
		op.Certificate{
			Cert: module.RegistryCert, Key: module.RegistryKey, CA: r.CA, CAKey: module.RegistryCAKey,
			CommonName: h.Name, Names: spec.RegistryNames(env.Cluster), Server: true, ValiditySeconds: int64(env.CertValidity().Seconds()),
		},
	)
}

// serviceOps returns the user, the unit, the settings and the logins of the registry. The
// unit copies the files at each start, because the registry runs as a user that cannot
// read the originals. It is restarted when one of them changes.
func serviceOps(env module.Env, onHost []byte) (op.List, error) {
	p := env.Cluster.Spec.Registry.Private
	config, err := module.RenderTemplate(files, "config.yml", map[string]any{
		"Directory": p.Directory, "Port": p.Port,
		"Cert": copiedPath(module.RegistryCert), "Key": copiedPath(module.RegistryKey), "Users": copiedPath(module.RegistryUsers),
	})
	if err != nil {
		return nil, err
	}
	reads := []string{configFile, module.RegistryUsers, module.RegistryCert, module.RegistryKey}
	unit, err := module.RenderTemplate(files, module.RegistryUnit, map[string]any{
		"Program": program, "Config": copiedPath(configFile), "Mounts": module.UnitMounts(p.Directory), "Directory": p.Directory,
		"User": user, "Run": runDir, "Files": reads, "LowPort": p.Port < 1024,
	})
	if err != nil {
		return nil, err
	}
	list := op.List{
		op.User{Name: user},
		op.Dir{Path: p.Directory, Mode: 0o700, Owner: user, Group: user, Exclusive: true},
	}
	return append(append(list, waitDirAccess(p.Directory)...),
		op.File{Path: configFile, Content: config},
		op.File{Path: module.RegistryUsers, Content: renderUserFile(env, onHost), Mode: 0o600, Secret: true},
		op.File{Path: unitFile, Content: unit},
		op.Unit{
			Name: module.RegistryUnit, Enabled: op.Bool(true), Running: op.Bool(true),
			RestartOn: append(reads, unitFile, program),
			// The next step logs in, so the registry must be listening.
			Again: []op.Wait{{TCP: env.RegistryClient().Address, TimeoutSeconds: 60}},
		},
	), nil
}

// copiedPath returns the path to which the unit copies a file for the registry.
func copiedPath(file string) string { return runDir + "/" + path.Base(file) }

// waitDirAccess waits until the user of the registry can access a directory that the
// user has configured. It runs before a registry that runs as root is restarted as that
// user, because a parent directory may be closed. The unit itself gives access to
// directories that it hides.
func waitDirAccess(dir string) op.List {
	hidden := slices.ContainsFunc([]string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"},
		func(p string) bool { return strings.HasPrefix(dir, p) })
	if hidden || dir == spec.DefaultRegistryDirectory {
		return nil
	}
	return op.List{op.Wait{
		Name:    "access to " + dir + " for user " + user + " (mode o+x on every directory above it)",
		Program: []string{"setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups", "test", "-x", dir}, TimeoutSeconds: 1,
	}}
}
