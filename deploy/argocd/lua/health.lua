local function health(is, message)
  return {status = is, message = message}
end

local function told(one)
  return one.reason .. ": " .. one.message
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "deleting the fleet: its pods end first")
end

local read = status.observedGeneration or -1
if read < 0 then
  return health("Progressing", "no operator has read this fleet yet")
end
if read < generation then
  return health("Progressing", "the operator has read generation " .. read .. " of " .. generation)
end

local stalled = condition("Stalled")
if stalled ~= nil then
  return health("Degraded", told(stalled))
end

-- What a person must end: rollout.paused, or canaries that wait for promotedVersion.
local moving, hold = condition("Reconciling"), nil
if moving ~= nil and moving.reason == "Paused" then
  hold = " (action: resume)"
elseif moving ~= nil and moving.reason == "CanaryHold" then
  local canary = at("rollout", "canary") or {}
  if canary.promote == "Manual" and canary.promotedVersion ~= rollout.to then
    hold = " (action: promote)"
  end
end
if moving ~= nil and hold == nil then
  local first = (rollout or {}).message or ""
  if moving.reason == "RollingOut" and first ~= "" then
    return health("Progressing", told(moving) .. "; " .. first)
  end
  return health("Progressing", told(moving))
end

local degraded = condition("Degraded")
if degraded ~= nil then
  return health("Degraded", told(degraded))
end
if hold ~= nil then
  return health("Suspended", told(moving) .. hold)
end
local paused = condition("Paused")
if paused ~= nil then
  return health("Suspended", told(paused))
end

local ready = condition("Ready")
if ready == nil then
  return health("Progressing", status.summary or "no worker is ready yet")
end
if at("rollout", "dryRun") then
  local plan = (status.preview or {})[1]
  if plan ~= nil then
    return health("Suspended", "dry run: " .. plan)
  end
end
return health("Healthy", ready.message)
