-- For the audit. Last: the functions are complete.
do $$
begin
  perform fence._remember_functions();
end
$$;
