package manifest

// Values of [Options.Source].
const (
	SourceFile = "file"
	SourceHTTP = "http"
)

// Options are the settings of [Load] and of its steps [Decode], [Normalize] and
// [Validate]. Each field names the steps that read it.
type Options struct {
	// NodeName is the name of the node that the pods run on. Required by Normalize.
	NodeName string
	// Source is the kind of source, [SourceFile] or [SourceHTTP]. Normalize writes it
	// to the pod's annotation kubernetes.io/config.source. Default: SourceFile.
	Source string
	// Origin is the path of the file or the URL. Normalize derives UIDs from it.
	Origin string

	// Kinds are the kinds that Decode accepts, alone and in lists: [PodKind],
	// objects.SecretKind, objects.ConfigMapKind. Any other kind is an error.
	// Default: PodKind.
	Kinds []string
	// Warn receives the unknown and duplicated fields that Decode finds. If nil, they
	// are errors.
	Warn func(error)

	// AllowObjects has Validate accept pods that refer to objects of an API server, such
	// as secrets. Without it they are refused, as kubelet refuses static pods that do:
	// on a node without an API server they could never start.
	AllowObjects bool
	// ObjectSource has Validate accept what an objects.Source can give: environment
	// variables and pull secrets from secrets and config maps.
	ObjectSource bool
}
