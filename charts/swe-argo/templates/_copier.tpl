{{- /* The one init container that a sandbox may have: what copies an agent's files out of their image. */ -}}
{{- define "swe-argo.copier" -}}
- expression: size(variables.copiers) <= 1 && variables.copiers.all(each, each.name == 'agent-files')
  reason: Forbidden
  message: "a sandbox has no init container but agent-files, which copies an agent's files"
- expression: >-
    variables.copiers.all(each, each.?command.orValue([]) == ['/.swe-argo/copy', 'copy', '/', '/.swe-argo/files']
    && dyn(each).?volumeMounts.orValue([]) == [{'name': 'agent-files', 'mountPath': '/.swe-argo/files'}])
  reason: Forbidden
  message: "the init container of a sandbox copies an agent's files into their volume, and nothing else"
- expression: >-
    variables.copiers.all(each, dyn(each).?securityContext.orValue({})
    == {'allowPrivilegeEscalation': dyn(false), 'capabilities': dyn({'drop': ['ALL']})})
  reason: Forbidden
  message: "the init container of a sandbox has no capabilities, and allowPrivilegeEscalation false"
- expression: "variables.copiers.all(each, dyn(each).?resources.orValue({}) == dyn(variables.box).?resources.orValue({}))"
  reason: Forbidden
  message: "the init container of a sandbox asks for what the sandbox asks for"
- expression: >-
    variables.copiers.all(each, dyn(each).all(key, key in ['name', 'image', 'imagePullPolicy', 'command', 'resources',
    'securityContext', 'volumeMounts', 'terminationMessagePath', 'terminationMessagePolicy', 'resizePolicy']))
  reason: Forbidden
  message: "the init container of a sandbox has fields that the project does not set"
- expression: variables.images.all(image, image == variables.box.image || image.contains('@sha256:'))
  reason: Forbidden
  message: "an agent's files come from an image that is named by its digest"
{{- end }}
