package messages

import "slipway.dev/slipway/api/v1alpha1"

var bundles = Section{
	Title: "Bundles",
	Intro: "[bundle.md](bundle.md) describes bundles.",
	Messages: []Message{
		{
			ID:      "bundle-not-found",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no such bundle.",
			Cause:   "No directory, file or registry reference with that name exists, or the directory is not a bundle.",
			Remedy:  "Correct the name, or build a bundle: `slipway bundle build`.",
		},
		{
			ID:      "bundle-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A bundle of the cache cannot be removed, because an operation uses it.",
			Cause:   "An operation of this machine has opened the bundle and sends its content to hosts.",
			Remedy:  "Wait until the operation has ended.",
		},
		{
			ID:      "bundle-ambiguous",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cache has several bundles of this version.",
			Cause:   "They have different architectures or sources.",
			Remedy:  "Give the digest of one of them.",
		},
		{
			ID:      "bundle-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The OCI image layout is not a bundle, or a newer Slipway built it.",
			Cause: "Or its version or architecture is not valid, or it lacks a part that every bundle needs, such as the " +
				"Kubernetes programs.",
			Remedy: "Name a bundle, or use the newer Slipway.",
		},
		{
			ID:      "bundle-corrupt",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The content of the bundle is damaged.",
			Cause: "Content of the bundle is missing, incomplete, or does not match its digest, or the bundle has content " +
				"that does not belong to it. Each fault is one line, which names the parts that use it.",
			Remedy: "If the bundle is in the cache, run `slipway bundle build`, `pull` or `import` again: they replace " +
				"damaged content. Otherwise copy it again from an intact source.",
		},
		{
			ID:      "bundle-unreadable",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A file of the bundle, or of the cache, cannot be read or written.",
			Cause: "It belongs to another user, something else is at its path, or the disk fails. The message has the file " +
				"and the reason.",
			Remedy: "Correct the permissions, or move the file away.",
		},
		{
			ID:      "bundle-truncated",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle file is incomplete, or is not a bundle.",
			Cause: "The file ends too early, or is not a bundle in `.tar.zst` format, usually because a copy was " +
				"interrupted.",
			Remedy: "Compare its size with the original.",
		},
		{
			ID:      "bundle-arch-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle does not have the architecture of the host.",
			Remedy:  "Build a bundle for all architectures with the command of the hint.",
		},
		{
			ID:      "bundle-manifest-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file of `slipway bundle build --manifest` cannot be used.",
			Cause:   "The message lists all problems at once.",
			Remedy: "Correct the file. `slipway create manifest` writes a valid file, and " +
				"[bundle.md](bundle.md#manifests-more-images-other-versions) shows the format. Images are written in " +
				"full, with their registry and a tag or a digest: `docker.io/library/nginx:1.29`.",
		},
		{
			ID:      "extra-image-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An image of a manifest is not available.",
			Cause: "Its registry does not answer, does not have the image, or does not accept the login (`--credentials`), " +
				"or the image does not have one of the architectures. The message has the reason. Nothing was built. An " +
				"image that is in the cache under its digest does not need a registry.",
			Remedy: "Correct the reference or the login, and build again.",
		},
		{
			ID:      "extra-image-untagged",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An image has no unique tag, and Docker cannot load it.",
			Cause: "The file has `containerRuntime: {type: docker}`, and the bundle has an image that its manifest names " +
				"only by a digest, or by a tag that another image in it also has.",
			Remedy: "Write a tag before the digest (`…/app:v1@sha256:…`) and build the bundle again; or remove the image.",
		},
		{
			ID:        "image-left-out",
			IsWarning: true,
			Summary:   "An image name is not valid for a registry.",
			Cause: "Reported by `slipway create manifest --from-cluster`. The manifest does not contain the image of a " +
				"pod.",
			Remedy: "Add the image under `images:` with its registry and a tag or digest if you need it.",
		},
		{
			ID:      "bundle-part-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle lacks a component or an image that this Slipway needs.",
			Cause: "An older Slipway built it, or its source does not have the image (kube-vip with source modules; " +
				"keepalived and apiserver-updater with source upstream, if no registry has them).",
			Remedy: "Build a complete bundle with the command of the hint. It has `--source`, because a build without it " +
				"uses the bundle in the cache.",
		},
		{
			ID:      "bundle-without-docker",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no bundle with Docker.",
			Cause: "The file has `containerRuntime: {type: docker}`, and the bundle lacks dockerd or cri-dockerd, or there " +
				"is no bundle. Before an upgrade, Slipway checks the bundles of all versions on the path. Slipway does " +
				"not build such a bundle automatically. You choose its source, because Docker releases can only be " +
				"downloaded with checksums that you provide.",
			Remedy: "Compile a bundle with the command of the hint; see [runtimes.md](runtimes.md).",
		},
		{
			ID:      "bundle-pull-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The bundle could not be pulled from the registry.",
			Cause: "The registry does not answer, does not have the reference, or needs credentials. Slipway uses the " +
				"credentials from `docker login` or `podman login`, or from the file of `--credentials`; `--ca` names " +
				"the CA of the registry. Without `--insecure`, Slipway uses plain HTTP only to this machine, at a " +
				"loopback address. If the registry requests its credentials for another host, Slipway does not send " +
				"them: see [bundle.md](bundle.md#carrying). Nothing remains in the cache.",
			Remedy: "Correct the reference, the network or the credentials, and pull again.",
		},
		{
			ID:      "bundle-push-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The bundle could not be pushed to the registry.",
			Cause: "The registry does not answer, needs other credentials, or does not have the content that was sent, " +
				"which Slipway checks at the end.",
			Remedy: "Run the command again: content that the registry has is not sent again.",
		},
		{
			ID:      "bundle-reference-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The reference of a bundle is not valid.",
			Cause: "A bundle in a registry is named by host, repository and a tag or digest: " +
				"`registry.example.com/slipway/bundle:v1.37.1`. There is no default tag.",
			Remedy: "Write the reference in this form.",
		},
		{
			ID:      "registry-credentials-unusable",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The file of `--credentials` cannot be used.",
			Cause: "It does not exist, or does not have the format that `docker login` writes: `{\"auths\": " +
				"{\"registry.example.com\": {\"username\": \"…\", \"password\": \"…\"}}}`. Its content is never " +
				"printed.",
			Remedy: "Log in with `docker login`, or correct the file.",
		},
		{
			ID:      "registry-ca-unusable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file of `--ca` does not exist or has no PEM certificate.",
			Remedy:  "Name a PEM file with the CA of the registry.",
		},
		{
			ID:      "bundle-unsigned",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`--key` or `spec.bundleKeys` requires a key, and the bundle has no signature of this key.",
			Cause:   "Nothing was changed, and nothing remains in the cache.",
			Remedy:  "Get a signed bundle, or ask the owner of the private key to sign it: `slipway bundle sign`.",
		},
		{
			ID:      "bundle-signature-wrong",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The signature does not match the content of the bundle.",
			Cause:   "The signature has the name of the required key. Someone changed the bundle, or moved a signature.",
			Remedy:  "Do not use the bundle; ask the person who gave it to you.",
		},
		{
			ID:      "bundle-signature-old",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The required key signed the bundle before the time of `--not-older-than`.",
			Cause: "It can be an older bundle of the same Kubernetes version, with older programs. This id is also used if " +
				"`--not-older-than` is not a time, or if `--key` is missing.",
			Remedy: "Get a newer bundle.",
		},
		{
			ID:      "bundle-key-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The key cannot be used.",
			Cause: "It is not an Ed25519 key, or `keygen` cannot write a key pair with that name; in this case no part of " +
				"the pair remains. A public key is a line that begins with `ed25519:`, or PEM. A private key is PEM, as " +
				"`slipway bundle keygen` writes it.",
			Remedy: "Name a valid key, or another place for the key pair.",
		},
		{
			ID:      "bundle-key-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A key with this name exists.",
			Cause:   "`bundle keygen` does not overwrite a key, because bundles can be signed with it.",
			Remedy:  "Choose another name.",
		},
		{
			ID:      "bundles-do-not-fit",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundles cannot be merged.",
			Cause: "`bundle merge` combines bundles of the same version and source, each for different architectures. The " +
				"message names the difference.",
			Remedy: "Choose bundles of the same version and source.",
		},
		{
			ID:      "bundle-base-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The base bundle of a delta is missing.",
			Cause: "A delta only has the content that its base bundle lacks. A damaged blob in the cache counts as " +
				"missing.",
			Remedy: "Import the base bundle first (`slipway bundle import`), or get the full bundle.",
		},
		{
			ID:      "bundle-out-unusable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The path of `--out` cannot be used.",
			Cause: "It is empty, or exists and is not a file (a directory, a device or a pipe). Or it is a file that is " +
				"not a bundle and would be overwritten.",
			Remedy: "Name another file. To name a directory, end the path with `/`.",
		},
		{
			ID:      "disk-full",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The file system of the bundle or of the cache is full.",
			Cause:   "Verified content is kept.",
			Remedy:  "Free disk space, or move the cache with `SLIPWAY_CACHE`.",
		},
		{
			ID:      "unknown-architecture",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The architecture is unknown.",
			Cause:   "A bundle can have `amd64` and `arm64`.",
			Remedy:  "Name one of them, or both separated by a comma.",
		},
		{
			ID:      "unknown-bundle-source",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value of `--source` is not valid.",
			Remedy:  "Use `auto`, `upstream` or `modules`.",
		},
		{
			ID:      "unknown-upstream-site",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`--mirror` or `--site` has an unknown name or an insecure address.",
			Cause: "The hint lists the known names. Or a site has an `http://` URL. Its checksums come from the same site, " +
				"so they do not protect its files.",
			Remedy: "Name a known site. For a URL, use `https://`, or add `--insecure`.",
		},
		{
			ID:      "download-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A release site does not answer, or does not have the file or its checksum.",
			Cause:   "When you run the command again, an interrupted download continues at the point of interruption.",
			Remedy:  "Check the network, and run the command again.",
		},
		{
			ID:      "checksum-missing",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The published list of checksums does not contain the file, so the file is not used.",
			Cause:   "The mirror can be outdated.",
			Remedy:  "Use another mirror, or `--source modules`.",
		},
		{
			ID:      "checksum-mismatch",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The download does not match its checksum, even after a new start.",
			Cause:   "The file or the mirror is damaged, or someone changed the file. It is not used.",
			Remedy:  "Try again, or use another mirror or `--source modules`.",
		},
		{
			ID:      "image-pull-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A registry does not answer or does not have the image for the architecture.",
			Remedy:  "Check the network and the reference; `--site` names another registry.",
		},
		{
			ID:      "go-tool-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The go tool is missing.",
			Cause:   "Source `modules` compiles with it.",
			Remedy:  "Install Go 1.26 or newer, or use `--source upstream`.",
		},
		{
			ID:      "checksums-off",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An environment variable disables the Go checksum database.",
			Cause:   "Modules for a bundle are always verified.",
			Remedy:  "Unset the variable.",
		},
		{
			ID:      "module-fetch-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A module is not available from the module proxy.",
			Cause: "There is no network, `GOPROXY` is different, or the proxy or the checksum database does not have the " +
				"version.",
			Remedy: "Check the network and `GOPROXY`. If the version does not exist there, use another patch version, or " +
				"`--source upstream`.",
		},
		{
			ID:      "compile-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A component could not be compiled.",
			Cause: "The message has the last lines of the compiler. The usual causes are memory and disk space: linking " +
				"Kubernetes needs 2 GiB.",
			Remedy: "Free memory or disk space, and build again: compiled parts are kept.",
		},
		{
			ID:      "compiler-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A C compiler is missing.",
			Cause:   "runc and flannel need one, and for another architecture a cross compiler.",
			Remedy:  "Install the Debian packages that the hint names.",
		},
		{
			ID:      "apt-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "This machine does not have apt.",
			Cause:   "The packet filter programs in a bundle come from Debian packages.",
			Remedy:  "Build on Debian or Ubuntu, or use `--source upstream`.",
		},
		{
			ID:      "package-fetch-failed",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "apt could not fetch a package.",
			Remedy: "Check the network and `apt-get update`. For another architecture, the sources in `/etc/apt` must have " +
				"that architecture as well.",
		},
		{
			ID:      "program-version-differs",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A new program reports a different version than expected.",
			Cause:   "It was not kept.",
			Remedy:  "Report it: this is a bug in Slipway.",
		},
	},
}
