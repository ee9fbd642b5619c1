package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Support says what becomes of a field of a pod.
type Support int

// What becomes of a field. What is below a field that is not Supported has the
// same fate.
const (
	Supported Support = iota // it does what Kubernetes says
	Rejected                 // a pod that uses it is refused
	NoEffect                 // it is accepted with a warning, and nothing happens
)

// String gives the words of docs/pod-spec.md.
func (s Support) String() string {
	return [...]string{"supported", "rejected", "no effect"}[s]
}

// rule is the fate of one field, of some of its values, or of some of its keys.
type rule struct {
	field   string
	support Support
	message string // after the path: what is wrong
	hint    string // what to do

	// neutral values change nothing, so they need no warning.
	neutral []any
	// value, if set, limits the rule to such a value of the field.
	value string
	// unless, if set, is a field beside this one and the value of it with which
	// the rule does not hold.
	unless *sibling
	// key, if set, limits the rule to such keys of a mapping. It is written as
	// it is in the docs; matches decides.
	key     string
	matches func(key string) bool
}

// sibling is a value of a field beside the one that a rule is about.
type sibling struct{ field, value string }

// typeRules are the fates of the fields of one API type, wherever it is used.
type typeRules struct {
	typ       string // name of the Go type in k8s.io/api/core/v1
	supported string // field names as in JSON
	rules     []rule // all others, and exceptions from supported
	notes     map[string]string
}

func reject(field, message, hint string) rule {
	return rule{field: field, support: Rejected, message: message, hint: hint}
}

func noEffect(field, message string, neutral ...any) rule {
	return rule{field: field, support: NoEffect, message: message, neutral: neutral}
}

// rejectAll is reject for several fields that share their reason.
func rejectAll(fields, message, hint string) []rule {
	var rules []rule
	for _, f := range strings.Fields(fields) {
		rules = append(rules, reject(f, message, hint))
	}
	return rules
}

const (
	noCluster  = "has no effect: nothing schedules pods here, this node runs them all"
	noStorage  = "is not supported: there is no storage driver here"
	useVolume  = "use hostPath, for example with a file system you mounted yourself, or emptyDir"
	alphaGate  = "is not supported: it is alpha, and off, in Kubernetes 1.37"
	noSELinux  = "has no effect: berth sets no SELinux labels"
	noWindows  = "is not supported: berth runs Linux pods only"
	noClaims   = "is not supported: there are no devices to claim"
	noAccounts = "has no effect: there are no service accounts and no tokens"
)

func isEphemeralStorage(key string) bool {
	return key == string(corev1.ResourceEphemeralStorage)
}

// isExtended reports whether a resource is none that the kernel shares out.
func isExtended(key string) bool {
	switch corev1.ResourceName(key) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return false
	}
	return !strings.HasPrefix(key, corev1.ResourceHugePagesPrefix)
}

// resourceRules hold for limits and requests alike.
func resourceRules(field string) []rule {
	return []rule{
		{field: field, support: NoEffect, key: "ephemeral-storage", matches: isEphemeralStorage,
			message: "has no effect: berth does not measure a pod's disk use", hint: "an emptyDir with medium: Memory has a real sizeLimit"},
		{field: field, support: Rejected, key: "example.com/device", matches: isExtended,
			message: "is not supported: there are no device plugins here", hint: "use cpu, memory or hugepages-<size>"},
	}
}

// supportTable classifies every field of v1.PodSpec and below.
// TestEveryFieldIsClassified holds it against the Go types, and
// docs/pod-spec.md is written from it.
var supportTable = []typeRules{
	{
		typ: "PodSpec",
		supported: `volumes initContainers containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds
			dnsPolicy hostNetwork hostPID hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain
			hostAliases dnsConfig readinessGates setHostnameAsFQDN os hostUsers resources hostnameOverride`,
		rules: []rule{
			reject("ephemeralContainers", "can't be in a manifest: they are for pods that run", "use containers or initContainers"),
			noEffect("nodeSelector", noCluster),
			noEffect("serviceAccountName", noAccounts, "default"),
			noEffect("serviceAccount", noAccounts, "default"),
			noEffect("automountServiceAccountToken", noAccounts, false),
			noEffect("nodeName", "has no effect: the pod runs on this node"),
			noEffect("affinity", noCluster),
			noEffect("schedulerName", noCluster, "default-scheduler"),
			noEffect("tolerations", noCluster),
			noEffect("priorityClassName", "has no effect: no pod is preempted for another"),
			noEffect("priority", "has no effect: no pod is preempted for another", int32(0)),
			reject("runtimeClassName", "is supported only if a --runtime-handler of berth has that name", "name it there, or remove it"),
			noEffect("enableServiceLinks", "has no effect: there are no Services", false),
			noEffect("preemptionPolicy", "has no effect: no pod is preempted for another", "PreemptLowerPriority"),
			reject("overhead", "is not supported: only a runtime class sets it", "add it to resources"),
			noEffect("topologySpreadConstraints", noCluster),
			reject("schedulingGates", "would keep the pod from ever starting: nothing opens the gates here", "remove them"),
			reject("resourceClaims", noClaims, "mount the device with hostPath, in a privileged container"),
			noEffect("schedulingGroup", noCluster),
			noEffect("evictionResponders", "has no effect: nothing asks them"),
		},
		notes: map[string]string{
			"dnsPolicy":      "there is no cluster DNS: ClusterFirst gives the machine's name servers, as Default does. Pods with a network of their own get none that is on its loopback; where that is systemd-resolved, they get the servers it asks",
			"readinessGates": "the pod is not Ready until something sets the condition",
			"os":             "linux only",
		},
	},
	{
		typ:       "PodOS",
		supported: "name",
		rules:     []rule{{field: "name", support: Rejected, value: "windows", message: noWindows, hint: "write linux, or remove os"}},
	},
	{
		typ:       "Volume",
		supported: "name hostPath emptyDir secret downwardAPI configMap projected image",
		rules: append(rejectAll(`gcePersistentDisk awsElasticBlockStore nfs iscsi glusterfs rbd flexVolume cinder cephfs
			flocker fc azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO storageos csi`, noStorage, useVolume),
			reject("persistentVolumeClaim", "is not supported: there are no claims here", useVolume),
			reject("ephemeral", "is not supported: there are no claims here", "use emptyDir"),
			reject("gitRepo", "is not supported: Kubernetes removed it", "clone in an init container into an emptyDir"),
		),
	},
	{typ: "HostPathVolumeSource", supported: "path type"},
	{
		typ:       "EmptyDirVolumeSource",
		supported: "medium sizeLimit",
		rules: []rule{
			{field: "sizeLimit", support: NoEffect, unless: &sibling{"medium", string(corev1.StorageMediumMemory)},
				message: "has no effect: berth does not measure a pod's disk use", hint: "write medium: Memory to have a limit"},
			reject("mode", alphaGate, "set it with chmod in an init container"),
		},
	},
	{typ: "SecretVolumeSource", supported: "secretName items defaultMode optional", rules: []rule{reject("defaultUser", alphaGate, "use securityContext.fsGroup")}},
	{typ: "ConfigMapVolumeSource", supported: "name items defaultMode optional", rules: []rule{reject("defaultUser", alphaGate, "use securityContext.fsGroup")}},
	{typ: "DownwardAPIVolumeSource", supported: "items defaultMode", rules: []rule{reject("defaultUser", alphaGate, "use securityContext.fsGroup")}},
	{typ: "ProjectedVolumeSource", supported: "sources defaultMode", rules: []rule{reject("defaultUser", alphaGate, "use securityContext.fsGroup")}},
	{typ: "ImageVolumeSource", supported: "reference pullPolicy"},
	{typ: "KeyToPath", supported: "key path mode", rules: []rule{reject("user", alphaGate, "use securityContext.fsGroup")}},
	{typ: "DownwardAPIVolumeFile", supported: "path fieldRef resourceFieldRef mode", rules: []rule{reject("user", alphaGate, "use securityContext.fsGroup")}},
	{
		typ:       "VolumeProjection",
		supported: "secret downwardAPI configMap",
		rules: []rule{
			reject("serviceAccountToken", "is not supported: there is no API server that signs tokens", "remove the volume and its mounts"),
			reject("clusterTrustBundle", "is not supported: there are no trust bundles here", "use a configMap"),
			reject("podCertificate", "is not supported: nothing signs certificates here", "use a secret"),
		},
	},
	{typ: "SecretProjection", supported: "name items optional"},
	{typ: "ConfigMapProjection", supported: "name items optional"},
	{typ: "DownwardAPIProjection", supported: "items"},
	{
		typ: "Container",
		supported: `name image command args workingDir ports envFrom env resources restartPolicy restartPolicyRules
			volumeMounts livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy
			imagePullPolicy securityContext stdin stdinOnce tty`,
		rules: []rule{
			noEffect("resizePolicy", "has no effect: a change of resources replaces the container"),
			reject("volumeDevices", "is not supported: there are no block volumes here", "use a hostPath volume of type BlockDevice"),
		},
	},
	{
		typ:       "ContainerPort",
		supported: "name hostPort containerPort protocol hostIP",
		rules:     []rule{{field: "protocol", support: Rejected, value: "SCTP", message: "is not supported: ports are forwarded for TCP and UDP", hint: "use TCP or UDP"}},
		notes:     map[string]string{"hostIP": "for hostPort"},
	},
	{typ: "EnvVar", supported: "name value valueFrom"},
	{
		typ:       "EnvVarSource",
		supported: "fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef",
	},
	{typ: "ObjectFieldSelector", supported: "apiVersion fieldPath"},
	{typ: "ResourceFieldSelector", supported: "containerName resource divisor"},
	{typ: "ConfigMapKeySelector", supported: "name key optional"},
	{typ: "SecretKeySelector", supported: "name key optional"},
	{typ: "FileKeySelector", supported: "volumeName path key optional"},
	{typ: "EnvFromSource", supported: "prefix configMapRef secretRef"},
	{typ: "ConfigMapEnvSource", supported: "name optional"},
	{typ: "SecretEnvSource", supported: "name optional"},
	{
		typ:       "ResourceRequirements",
		supported: "limits requests",
		rules: append(append(resourceRules("limits"), resourceRules("requests")...),
			reject("claims", noClaims, "remove it")),
		notes: map[string]string{"limits": "cpu, memory, hugepages-<size>", "requests": "cpu, memory, hugepages-<size>"},
	},
	{typ: "ContainerRestartRule", supported: "action exitCodes"},
	{typ: "ContainerRestartRuleOnExitCodes", supported: "operator values"},
	{
		typ:       "VolumeMount",
		supported: "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr",
		rules:     []rule{reject("bindMountOptions", alphaGate, "remove it")},
	},
	{
		typ: "Probe",
		supported: `exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds successThreshold
			failureThreshold terminationGracePeriodSeconds`,
		notes: map[string]string{
			"periodSeconds":       "below one second by annotation, see above",
			"timeoutSeconds":      "below one second by annotation, see above",
			"initialDelaySeconds": "below one second by annotation, see above",
		},
	},
	{
		typ: "Lifecycle", supported: "postStart preStop stopSignal",
		notes: map[string]string{"stopSignal": "needs spec.os.name; alpha, and off, in Kubernetes 1.37; always on here"},
	},
	{
		typ:       "LifecycleHandler",
		supported: "exec httpGet sleep",
		rules:     []rule{reject("tcpSocket", "is not supported: in Kubernetes it always fails", "use exec, httpGet or sleep")},
	},
	{typ: "ExecAction", supported: "command"},
	{
		typ: "HTTPGetAction", supported: "path port host scheme httpHeaders protocol",
		notes: map[string]string{"protocol": "alpha, and off, in Kubernetes 1.37; always on here"},
	},
	{typ: "HTTPHeader", supported: "name value"},
	{typ: "TCPSocketAction", supported: "port host"},
	{
		typ: "GRPCAction", supported: "port service mode",
		notes: map[string]string{"mode": "alpha, and off, in Kubernetes 1.37; always on here"},
	},
	{typ: "SleepAction", supported: "seconds"},
	{
		typ: "PodSecurityContext",
		supported: `runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy fsGroup sysctls
			seccompProfile appArmorProfile`,
		rules: []rule{
			noEffect("seLinuxOptions", noSELinux),
			reject("windowsOptions", noWindows, "remove it"),
			noEffect("fsGroupChangePolicy", "has no effect: the volumes here are made anew for each pod"),
			noEffect("seLinuxChangePolicy", noSELinux),
		},
	},
	{
		typ: "SecurityContext",
		supported: `capabilities privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem
			allowPrivilegeEscalation procMount seccompProfile appArmorProfile`,
		rules: []rule{
			noEffect("seLinuxOptions", noSELinux),
			reject("windowsOptions", noWindows, "remove it"),
		},
	},
	{
		typ: "Capabilities", supported: "add drop",
		notes: map[string]string{
			"add":  "a name that no kernel knows is an error; one that this kernel or berth itself lacks is left out, with a warning in the log",
			"drop": "a name that no kernel knows is an error",
		},
	},
	{
		typ: "SeccompProfile", supported: "type localhostProfile",
		notes: map[string]string{"localhostProfile": "a file below seccomp in the root folder"},
	},
	{
		typ:       "AppArmorProfile",
		supported: "type",
		rules: []rule{
			{field: "type", support: Rejected, value: "Localhost", message: "is not supported: berth loads no profiles", hint: "use RuntimeDefault or Unconfined"},
			reject("localhostProfile", "is not supported: berth loads no profiles", "use RuntimeDefault or Unconfined"),
		},
		notes: map[string]string{"type": "RuntimeDefault needs a kernel with AppArmor"},
	},
	{typ: "Sysctl", supported: "name value"},
	{typ: "LocalObjectReference", supported: "name"},
	{typ: "HostAlias", supported: "ip hostnames"},
	{typ: "PodDNSConfig", supported: "nameservers searches options"},
	{typ: "PodDNSConfigOption", supported: "name value"},
	{typ: "PodReadinessGate", supported: "conditionType"},
}
