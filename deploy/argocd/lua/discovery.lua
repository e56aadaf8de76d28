local shown = {
  pause = {"Pause rollouts", "fa fa-fw fa-pause"},
  resume = {"Resume rollouts", "fa fa-fw fa-play"},
  retry = {"Retry the failed rollout", "fa fa-fw fa-redo"},
  abort = {"Abort: back to the version before", "fa fa-fw fa-times"},
  promote = {"Promote the canaries", "fa fa-fw fa-angle-double-up"},
  rollback = {"Roll back to the last other version", "fa fa-fw fa-undo"},
  follow = {"Follow the store again", "fa fa-fw fa-sync"},
}
local is_deleted = obj.metadata.deletionTimestamp ~= nil
local actions = {}
for name, change in pairs(changes) do
  actions[name] = {
    disabled = is_deleted or change() == nil,
    displayName = shown[name][1],
    iconClass = shown[name][2],
  }
end
return actions
